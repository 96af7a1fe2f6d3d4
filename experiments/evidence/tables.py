"""Shipped tables of recorded times with their data cards, made from the complete tables of stage `tables` of `make gpu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from agents.recording.passes import Plan
from agents.recording.record_table import Content, write
from agents.runs.journal import read_rows
from agents.runs.schedules import schedules_of
from experiments.evidence.facts import RAW, Facts
from gensor_gym import hardware, operators
from gensor_gym.hardware.described import FILE
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.store import Record
from gensor_gym.measure.records.tables import read_table

SPACE = "compact"
"""Space of the tables."""
RECORDED, OPERATORS = "recorded.jsonl.gz", "operators.jsonl.gz"


def write_tables(folder: Path, facts: Facts, machine: Path) -> list[dict[str, Any]]:
    """Write the complete tables of a folder of results into `machine`, and return the description of each.

    `machine` is the folder of the recorded machine. Its `hardware.json` describes the machine as it was at the time of the
    timings, so that tables do not change with the model's rates. Raise ValueError without that file.
    """
    described = machine / FILE
    if not described.is_file():
        raise ValueError(f"no {described}: it describes the machine that the tables are of")
    hw = hardware.from_json(described.read_text(encoding="utf-8"))
    by_operator: dict[str, list[Record]] = {}
    for record in read_table(folder / RAW / RECORDED).records:
        by_operator.setdefault(record.operator, []).append(record)
    drift = drift_of(read_rows(folder / RAW / OPERATORS))
    contents = (content_of(records, hw, facts, drift) for records in by_operator.values())
    return [write(content, machine) for content in contents if content is not None]


def content_of(records: Sequence[Record], hw: Hardware, facts: Facts, drift: float) -> Content | None:
    """Return the content of one operator's table, in the order of enumeration; None if a schedule of the space was not recorded.

    `drift` is the standard deviation of log times between runs.
    """
    op = operators.parse(records[0].operator)
    known = {record.schedule: record for record in records}
    schedules = schedules_of(op, hw, SPACE)
    if not all(str(schedule) in known for schedule in schedules):
        return None
    chosen = [known[str(schedule)] for schedule in schedules]
    least = min(len(r.measurement.samples) for r in chosen if r.measurement.status is Status.OK)
    return Content(
        Plan(op, hw, SPACE, passes=1, samples=least), facts.device, schedules, [r.measurement.digest for r in chosen],
        {r.measurement.digest: one_pass(r.measurement) for r in chosen}, {r.measurement.digest: r.created for r in chosen}, [],
        facts.fingerprint, facts.version, drift, notes(facts), records[0].protocol,
    )  # fmt: skip


def twice_timed(rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Return the log ratios [N] of the median in a second run to the median in the first.

    They are of kernels with trials in two runs of stage `operators`.
    """
    seconds: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        for trial in row.get("trials", ()):
            if trial["seconds"] is not None:
                seconds.setdefault((row["operator"], trial["schedule"]), {})[row["run"]] = trial["seconds"]
    pairs = [[by_run[run] for run in sorted(by_run)[:2]] for by_run in seconds.values() if len(by_run) > 1]
    first, second = np.array(pairs).reshape(-1, 2).T
    return np.log(second / first)


def drift_of(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the standard deviation of the log of a kernel's median between runs; ValueError if no kernel has two runs."""
    ratios = twice_timed(rows)
    if not len(ratios):
        raise ValueError("no kernel of stage `operators` was timed in two runs: drift between passes is not known")
    return float(np.sqrt(np.mean(ratios**2) / 2.0))


def one_pass(found: Measurement) -> Measurement:
    """Return a measurement, which was made in a single pass, in the form of a recording.

    Its `trial_seconds` are the seconds of compiling and of the samples, because loading, verifying and warm-up were not recorded.
    """
    conditions: dict[str, Any] = {**found.conditions, "passes": [1] * len(found.samples)}
    if found.status is Status.OK:
        conditions["trial_seconds"] = conditions["compile_seconds"] + conditions["calls_per_sample"] * sum(found.samples)
    return replace(found, conditions=conditions)


def notes(facts: Facts) -> tuple[str, ...]:
    """Return the sentences about the recording for the tables' data cards."""
    said: Mapping[str, Any] = facts.files[RECORDED]
    return (
        f"Recorded on {facts.date} by {said['about']} (commit {facts.commit}); table made from the raw rows by "
        "`python -m experiments.evidence`, read by backend `recorded`. Digests are of the kernels of that commit.",
        f"Driver {facts.driver}, CuPy {facts.cupy}; clocks {facts.clocks}; {facts.others}. Seconds of a trial are those of "
        "compiling and of its samples; loading, verifying and warming up were not written down.",
    )
