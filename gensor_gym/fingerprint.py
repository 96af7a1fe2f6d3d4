"""The fingerprint of a task: results are comparable only if it is the same.

It is a hash of behaviour. It changes with the task's space, its rules or its model, and not with a comment, another machine, a
new operator or a faster implementation. It covers:

- which sizes and which values of knobs there are, where construction starts, the horizon, the roofline floor;
- which actions are legal along walks that are always the same, from the unscheduled program and one of every kind, and
  which of thousands of programs drawn near the limits are legal;
- how long programs take, with every term of the model: all of them in a small space, else those that were drawn and those
  that coordinate descents try on their way from the fastest of them.

Integers count exactly, seconds to six digits (a part in 2^20): other processors, compilers and orders of summation differ in the
last bits. Descents ignore gains that small, because a tie broken the other way would lead to another program. It is no proof: a
change that affects none of these programs does not show.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from gensor_gym import hardware as machines
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.column_descent import TRACED, descend
from gensor_gym.cost.model import fill_terms
from gensor_gym.cost.roofline import CAP_OVER_FLOOR
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.graph.actions import ACTIONS
from gensor_gym.graph.coordinates import moved_knobs, opened, usable_values
from gensor_gym.graph.enumeration import count_schedules
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.near_limits import DRAWS, near_limits
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts
from gensor_gym.graph.tables.layout import MAX_AXES, ROW
from gensor_gym.hardware.cpu import CASCADE_LAKE
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

HOST = "host"
"""The machine that this runs on, whose rates are measured."""
DIGITS = 16
"""Hexadecimal digits of a fingerprint."""
LISTED = 4096
"""Most candidates of a space whose programs are all evaluated."""
WALKS, STEPS = 12, 64
"""Walks from each start, and their steps."""
DRAWN = 4096
"""Programs drawn near the limits for each start."""
DESCENTS, EVALUATED = 4, 1536
"""Descents for each start, from the fastest drawn, and programs that one evaluates at most."""
GAIN = 1.0 - 1e-6
"""A descent takes a program that is faster by more than six digits show."""
COLUMNS = (64, 128, 256)
"""Columns of the wgmma programs that are begun with. Like the chances below it is a copy: searches may be tuned."""
CHANCES = np.array([1.0 if a.primitive.startswith("inverse") else 0.5 if a.primitive == "cache" else 2.0 for a in ACTIONS])
"""Relative frequency of an action in a walk, float64 [N]."""

_known: dict[bytes, str] = {}


def fingerprint(graph: ConstructionGraph) -> str:
    """Sixteen hexadecimal digits of the task's behaviour, cached for the process; nothing is charged.

    For the host only the limits count, because its measured rates vary a little.
    """
    if graph.hardware.name == HOST:
        graph = ConstructionGraph(graph.operator, _with_fixed_rates(graph.hardware), graph.space)
    tables = graph.tables
    parts = (tables.ints, tables.floats, tables.sizes, graph.initial().row)
    key = b"".join(part.tobytes() for part in parts)
    if key not in _known:
        _known[key] = _digest(graph)
    return _known[key]


def fingerprints(ops: Iterable[Operator], hardware: Hardware | str, space: str) -> dict[str, str]:
    """The fingerprint of every operator's task, by the operator's text."""
    return {str(op): _task_fingerprint(op, machines.get(hardware), space) for op in ops}


def common(found: Iterable[str]) -> str:
    """One fingerprint for several tasks, in any order; for a single task its own."""
    different = sorted(set(found))
    return different[0] if len(different) == 1 else hashlib.sha256(" ".join(different).encode()).hexdigest()[:DIGITS]


@lru_cache(maxsize=4096)
def _task_fingerprint(op: Operator, hardware: Hardware, space: str) -> str:
    """The fingerprint of a task without a graph."""
    return fingerprint(ConstructionGraph(op, hardware, space))


def _with_fixed_rates(host: Hardware) -> Hardware:
    """The host with the rates of a CPU that is a constant."""
    rates: dict[str, dict[str, Any]] = {
        level.name: {"bandwidth": level.bandwidth, "latency": level.latency} for level in CASCADE_LAKE.memory
    }
    memory = tuple(replace(level, **rates.get(level.name, {})) for level in host.memory)
    fixed = {name: getattr(CASCADE_LAKE, name) for name in ("clock", "peak", "launch_overhead")}
    return replace(host, name=f"{HOST} with fixed rates", memory=memory, **fixed)


def _digest(graph: ConstructionGraph) -> str:
    """Hash of all that the task is asked."""
    whole = hashlib.sha256(json.dumps(_facts(graph)).encode())
    tables = graph.tables
    begins = starts(tables, graph.initial().row, COLUMNS)
    for part in _walked(graph, begins):
        whole.update(part)
    small = count_schedules(tables.ints, tables.sizes) <= LISTED
    for begin, draws in zip(begins, _numbers((len(begins), DRAWN, DRAWS)), strict=True):
        rows = near_limits(begin, draws, tables.ints, tables.sizes)
        legal = graph.fits(rows)
        whole.update(np.packbits(legal).tobytes())
        programs = _evaluated(graph, rows[legal])
        whole.update(_six_digits(programs).tobytes())
        if not small:
            whole.update(_six_digits(_descended(graph, rows[legal], programs[:, 0])).tobytes())
    for rows in graph.enumerate() if small else ():
        whole.update(_six_digits(_evaluated(graph, rows)).tobytes())
    return whole.hexdigest()[:DIGITS]


def _facts(graph: ConstructionGraph) -> list[object]:
    """The task's space and scale from its tables."""
    tables = graph.tables
    knobs = {
        KNOBS[k].name: [KNOBS[k].values[i] for i in values]
        for k in moved_knobs(tables.ints)
        if len(values := usable_values(tables.ints, k)) > 1
    }
    seconds = [f"{value:.6g}" for value in (graph.floor, CAP_OVER_FLOOR * graph.floor)]
    ladders = [tables.ladder(slot) for slot in range(MAX_AXES)]
    return [ladders, sorted(knobs.items()), str(graph.initial()), graph.horizon, seconds]


def _walked(graph: ConstructionGraph, begins: np.ndarray) -> Iterator[bytes]:
    """Names of the actions that are legal anywhere along the walks, which are legal where, and the programs they end at."""
    draws = _numbers((len(begins), WALKS, STEPS))
    ways = np.array(
        [[graph.walk(begin, walk, CHANCES) for walk in walks] for begin, walks in zip(begins, draws, strict=True)]
    )
    masks = graph.action_masks(ways.reshape(-1, ROW))
    legal = np.flatnonzero(masks.any(axis=0))
    yield json.dumps([str(ACTIONS[action]) for action in legal]).encode()
    yield np.packbits(masks[:, legal]).tobytes()
    yield "\n".join(str(Schedule(row)) for row in ways[:, :, -1].reshape(-1, ROW)).encode()


def _numbers(shape: tuple[int, ...]) -> np.ndarray:
    """Float64 in [0, 1), always the same: raw bits of PCG64, which no release of NumPy changes."""
    bits = np.random.PCG64(0).random_raw(math.prod(shape))
    return ((bits >> np.uint64(11)) * 2.0**-53).reshape(shape)


def _evaluated(graph: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
    """Seconds and then terms of legal programs [B, ROW], float64 [B, 1 + terms]."""
    found = np.zeros((len(rows), 1 + NUM_TERMS))
    fill_terms(rows, graph.tables.ints, graph.tables.floats, graph.room(), found)
    return found


def _descended(graph: ConstructionGraph, rows: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Evaluations of descents from the fastest of `rows` [B, ROW], float64 [N, TRACED]; ranked to six digits."""
    parts = [np.empty((0, TRACED))]
    for row in rows[np.argsort(_rounded(seconds), kind="stable")[:DESCENTS]]:
        trace = np.empty((EVALUATED, TRACED))
        found = descend(opened(row, graph.tables.ints), graph.coordinates, graph.tables, gain=GAIN, trace=trace)
        parts.append(trace[: found.evaluated])
    return np.concatenate(parts)


def _rounded(seconds: np.ndarray) -> np.ndarray:
    """Seconds to six digits."""
    mantissa, exponent = np.frexp(seconds)
    return np.ldexp(np.rint(mantissa * 2.0**20), exponent)


def _six_digits(values: np.ndarray) -> np.ndarray:
    """Numbers as pairs of int32, twenty bits of the mantissa and the exponent; those that are not finite as (2^30, 0)."""
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(np.where(finite, values, 0.0))
    bits = np.where(finite, np.rint(mantissa * 2.0**20), 2.0**30)
    return np.stack([bits, exponent]).astype("<i4")
