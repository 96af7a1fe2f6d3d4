"""A walk through programs whose times an H100 took: what the moving picture and the pictures of the concepts show."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from gensor_gym import ConstructionGraph, Schedule, measure
from gensor_gym.env.pictures.facts import LEVEL_NAMES
from gensor_gym.exact.paths import actions_to
from gensor_gym.graph.actions import CACHE, TILE_UP
from gensor_gym.hardware.described import RECORDINGS

TASK, HARDWARE, SPACE = "gemm(m=1024, n=1024, k=1024)", "h100", "compact"
SLOTS = (3, 4, 5)
"""Places of m, n, k in a row."""
TABLE = RECORDINGS / "h100" / "gemm_m1024_n1024_k1024.parquet"


@dataclass(frozen=True)
class Step:
    """A program of the walk: the action that led to it, its measured seconds, its latency by the model."""

    action: str
    schedule: Schedule
    seconds: float
    predicted: float


@cache
def graph() -> ConstructionGraph:
    """The task's graph."""
    return ConstructionGraph(TASK, HARDWARE, SPACE)


@cache
def table() -> pd.DataFrame:
    """The recorded programs that ran, fastest first, with the median of their samples in seconds."""
    rows = pd.read_parquet(TABLE)
    rows = rows[rows["status"] == "OK"].copy()
    rows["median"] = [float(np.median(samples)) for samples in rows["samples"]]
    return rows.sort_values("median", ignore_index=True)


@cache
def steps() -> tuple[Step, ...]:
    """From the unscheduled program to the fastest one recorded: of the actions left for a level always the one that pays most."""
    task = graph()
    here, left = task.initial(), actions_to(task, Schedule.parse(table()["schedule"][0]))
    walk = [_step(here, "the unscheduled program")]
    while left:
        level = left[: left.index(CACHE)] if CACHE in left else left
        after = task.successors(here)
        choices = [action for action in level if action in after] or [CACHE]
        found = {action: _step(after[action], _said(here, action)) for action in choices}
        action = min(found, key=lambda each: found[each].seconds)
        left.remove(action)
        here = found[action].schedule
        walk.append(found[action])
    return tuple(walk)


def _said(before: Schedule, action: int) -> str:
    """An action in words."""
    level = LEVEL_NAMES["gpu"][before.level]
    if action == CACHE:
        return f"cache: the {level} is done, on to the {LEVEL_NAMES['gpu'][before.level + 1]}"
    slots = dict(zip(SLOTS, (axis.name for axis in graph().operator.axes), strict=True))
    return f"tile: a larger {level} along {slots[action - TILE_UP]}"


def _step(schedule: Schedule, action: str) -> Step:
    """A program with its times."""
    return Step(action, schedule, measure(TASK, schedule, HARDWARE, backend="recorded").seconds, graph().latency(schedule))
