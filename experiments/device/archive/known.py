"""The fastest programs that a device timed on earlier days, by operator, to detect regressions of a search."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

from agents.runs.journal import read_rows
from agents.runs.settings import ROOT
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Status
from gensor_gym.operators.types import Operator

RESULTS = ROOT / "results"
CARDS = ("h100", "h200")
"""Result folders of the cards whose programs are tried on one another."""
TABLES = ("recorded", "recorded_tensor", "recorded_test", "trials", "known_trials", "headline", "results", "policies")
"""Files with one row per trial."""
FIRST_DAY = "libraries_after_mends"
"""The file of the first day, with a row for each operator: schedule, a note, microseconds."""
LISTS = ("operators",)
"""Files with one row per operator, which contains its trials."""


def fastest(op: Operator, hw: Hardware, count: int) -> list[Schedule]:
    """The fastest programs of earlier days that are legal under the present rules, fastest first, at most `count`."""
    timed, graph = _timed().get(str(op), {}), ConstructionGraph(op, hw, "extended")
    programs = map(Schedule.parse, sorted(timed, key=timed.__getitem__))
    return list(islice(filter(graph.is_legal, programs), count))


def operators_timed(results: Path = RESULTS) -> set[str]:
    """Operators of the study whose winners were timed together on an earlier day."""
    paths = [path for card in CARDS for path in sorted((results / card / "raw").glob("*/together.jsonl.gz"))]
    return {row["operator"] for path in paths for row in read_rows(path) if "samples" in row}


@cache
def _timed() -> dict[str, dict[str, float]]:
    """Operator -> schedule -> least measured seconds."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for card in CARDS:
        for path in sorted((RESULTS / card / "raw").rglob("*.jsonl.gz")):
            for operator, schedule, seconds in _trials(path):
                found[operator][schedule] = min(seconds, found[operator].get(schedule, seconds))
    return found


def _trials(path: Path) -> Iterator[tuple[str, str, float]]:
    """(operator, schedule, seconds) of the successful trials in a file; empty for a file without trials."""
    name = path.name.removesuffix(".jsonl.gz")
    if name == FIRST_DAY:
        for row in read_rows(path):
            yield from ((row["operator"], text, 1e-6 * us) for text, said, us in row["rows"] if us and said.startswith("ok"))
    for row in read_rows(path) if name in (*TABLES, *LISTS) else []:
        for trial in row.get("trials", [row]) if name in LISTS else [row]:
            seconds = statistics.median_high(trial["samples"]) if trial.get("samples") else trial.get("seconds")
            if trial.get("status") == Status.OK.value and trial.get("schedule") and seconds is not None:
                yield row["operator"], trial["schedule"], seconds
