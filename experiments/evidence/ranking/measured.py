"""Programs that ran on a device, by operator: tables of stage `tables`, and the candidates that were raced with libraries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agents.runs.journal import read_rows
from experiments.benches.model import Sample
from experiments.evidence.facts import RAW
from experiments.evidence.tables import RECORDED
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Status

TENSOR, TEST = "recorded_tensor.jsonl.gz", "recorded_test.jsonl.gz"
LIBRARIES = "libraries_after_mends.jsonl.gz"
FITTED = ("train", "validation")
"""Parts of the split whose programs a fit may read."""
EVERY = (*FITTED, "test")
RECORDED_IN, RACED_IN = "compact", "extended"
"""Spaces of the float32 tables on CUDA cores, and of all other programs."""
Row = Mapping[str, Any]


def recorded(folder: Path, machine: str, parts: Collection[str] = FITTED) -> list[Sample]:
    """Recordings of stage `tables` for operators of these parts, from all days; ValueError if there are none.

    Files of the test part are opened only if that part is requested.
    """
    days = sorted(path.parent for path in (folder / RAW).glob(f"*/{RECORDED}"))
    compact = [row for place in (folder / RAW, *days) for row in read_rows(place / RECORDED)]
    names = (TENSOR, TEST) if "test" in parts else (TENSOR,)
    others = [row for place in days for name in names for row in read_rows(place / name)]
    found = [*_tables(compact, machine, RECORDED_IN), *_tables(others, machine, RACED_IN)]
    if not (kept := [table for table in found if table.part in parts]):
        raise ValueError(f"{folder} has no recorded table of an operator of {' or '.join(parts)}")
    return kept


def raced(folder: Path, machine: str, parts: Collection[str] = FITTED) -> list[Sample]:
    """Candidates of operators of these parts that were timed against libraries; ValueError if there are none."""
    found = []
    for row in read_rows(folder / RAW / LIBRARIES):
        if operators.part_of(operators.parse(row["operator"])) in parts:
            timed = {schedule: 1e-6 * us for schedule, _, us in row["rows"] if us is not None}
            found.append(_legal(row["operator"], machine, RACED_IN, timed))
    if not found:
        raise ValueError(f"{folder}/{RAW}/{LIBRARIES} has no operator of {' or '.join(parts)}")
    return found


def _tables(rows: Iterable[Row], machine: str, space: str) -> list[Sample]:
    """Measured kernels of each operator; every kernel counts once, with its first timing."""
    seconds: dict[str, dict[str, float]] = {}
    seen: set[tuple[str, str]] = set()
    for row in rows:
        kernel = row["operator"], row["digest"]
        if row["status"] == Status.OK.value and kernel not in seen:
            seen.add(kernel)
            seconds.setdefault(row["operator"], {})[row["schedule"]] = float(np.median(row["samples"]))
    return [_legal(operator, machine, space, timed) for operator, timed in seconds.items()]


def _legal(operator: str, machine: str, space: str, timed: Mapping[str, float]) -> Sample:
    """Programs from their texts and seconds, without programs that are illegal under the present rules."""
    graph = ConstructionGraph(operator, machine, space, calibrated=False)
    pairs = [(Schedule.parse(text), seconds) for text, seconds in timed.items()]
    legal = [(schedule, seconds) for schedule, seconds in pairs if graph.is_legal(schedule)]
    return Sample(graph, graph.stack([schedule for schedule, _ in legal]), np.array([seconds for _, seconds in legal]))
