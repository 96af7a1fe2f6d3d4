"""Stage 3: recorded tables, program by program with raw samples; what was recorded before is not repeated.

Three lists of conf/bench/gpu.yaml, each with a file of its own that backend `recorded` and `gensor store import` read:
whole tables of space `compact`, which the fit uses; programs on tensor cores, of the same parts of the split; and operators
of the test part, which no fit may read. First come some programs of every operator, so that there are some of all however
short the time; then all lists grow together. There is one pass: time on such a machine is short. `experiments.evidence`
makes tables to ship of what is complete, and says so; tables of several passes are made by `gensor record`.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from experiments.common.journal import read_rows
from experiments.device.context import Context, StageJournal
from experiments.device.stages.sampling import COMPACT, EXTENDED, Plan, plan
from experiments.device.table import read_table
from experiments.device.work.makers import Job, Programs, kernels, open_makers
from experiments.device.work.pipeline import Pipeline, Work
from experiments.device.work.progress import Progress
from experiments.device.work.trials import SEARCH, device_backends, device_pipeline
from gensor_gym import hardware
from gensor_gym.measure.devices.presence import device_name
from gensor_gym.measure.records.store import Record
from gensor_gym.measure.records.tables import to_row
from gensor_gym.operators.types import Operator

FILE, TENSOR_FILE, TEST_FILE = FILES = "recorded.jsonl", "recorded_tensor.jsonl", "recorded_test.jsonl"
"""Tables that the fit reads; programs on tensor cores; the test part."""
SPACE = COMPACT
"""Of the tables in FILE."""
FIRST = 30
"""Programs of every operator before more of any."""
EACH = {FILE: 160, TENSOR_FILE: 40, TEST_FILE: 20}
"""Programs of an operator in every later round, by file: all lists come to their end at about the same time."""
AHEAD = 16
"""Chunks of kernels that are made ahead."""


@dataclass(frozen=True)
class Target:
    """An operator to record, and where."""

    op: Operator
    file: str
    job: Job[Plan]


Trial = tuple[str, str, str, str]
"""File, key, operator, schedule."""


def key_of(operator: str, schedule: str, digest: str) -> str:
    """Key of a row: a generator that has changed a kernel makes a new trial of it."""
    return f"{operator} {schedule} {digest}"


def run(context: Context) -> dict[str, object]:
    """Record until the time is out or all lists are complete."""
    hw = hardware.get(context.hardware)
    device = device_name(hw)
    (backend,) = device_backends(SEARCH)
    progress = Progress("programs recorded")
    with ExitStack() as stack:
        stack.callback(backend.close)
        journals = {file: stack.enter_context(closing(context.journal(file, keep=True))) for file in FILES}
        makers = stack.enter_context(open_makers())
        work = work_of(targets(makers, hw.name, context.seed), makers, hw.name, journals)
        pipeline: Pipeline[Trial] = device_pipeline(backend, hw, lambda trial: trial[2])
        for trial, measurement in pipeline.run(work, lambda: context.left > 0):
            file, key, op, schedule = trial
            short = replace(measurement, error=measurement.error[-600:])
            journals[file].put(key, to_row(Record(device, op, schedule, short, time.time())))
            progress.count(op)
    return digest(Path(context.out), context.run)


def targets(makers: Executor, machine: str, seed: int) -> list[Target]:
    """Every operator to record; what is to be recorded of it is being planned from now on."""
    table = read_table()
    lists = (
        (FILE, COMPACT, table.tables, 0),
        (TENSOR_FILE, EXTENDED, table.tensor, table.tensor_programs),
        (TEST_FILE, EXTENDED, table.test, table.test_programs),
    )
    return [
        Target(op, file, makers.submit(plan, op, machine, space, count, seed, FIRST))
        for file, space, ops, count in lists
        for op in ops
    ]


def work_of(
    found: Sequence[Target], makers: Executor, machine: str, journals: dict[str, StageJournal]
) -> Iterator[Work[Trial] | None]:
    """What is still to be recorded, round after round over the operators; None while it is being made."""
    for target in found:
        while not target.job.done():
            yield None
        yield from _pending(target, target.job.result()[1], journals)
    coming: deque[tuple[Target, Job[Programs]]] = deque()
    for target, part in _parts(found):
        coming.append((target, makers.submit(kernels, target.op, machine, part)))
        if len(coming) > AHEAD:
            yield from _when_made(*coming.popleft(), journals)
    while coming:
        yield from _when_made(*coming.popleft(), journals)


def _parts(found: Sequence[Target]) -> Iterator[tuple[Target, list]]:
    """Schedules behind the first of every operator, in rounds."""
    at = {target.op: FIRST for target in found}
    while True:
        left = [target for target in found if at[target.op] < len(target.job.result()[0])]
        if not left:
            return
        for target in left:
            begin = at[target.op]
            at[target.op] = begin + EACH[target.file]
            yield target, target.job.result()[0][begin : at[target.op]]


def _when_made(target: Target, job: Job[Programs], journals: dict[str, StageJournal]) -> Iterator[Work[Trial] | None]:
    """The programs of a job that are still to be recorded, None until it is done."""
    while not job.done():
        yield None
    yield from _pending(target, job.result(), journals)


def _pending(target: Target, programs: Programs, journals: dict[str, StageJournal]) -> Iterator[Work[Trial]]:
    """Those not recorded yet."""
    for schedule, made in programs:
        key = key_of(str(target.op), str(schedule), made.digest)
        if journals[target.file].pending(key):
            yield (target.file, key, str(target.op), str(schedule)), made


def digest(out: Path, run: str) -> dict[str, object]:
    """By file and operator: rows, of which in this run, statuses, fastest and slowest."""
    found: dict[str, dict[str, object]] = {}
    total = 0
    for file in FILES:
        by_operator: dict[str, list[dict]] = {}
        for row in read_rows(out / file):
            by_operator.setdefault(row["operator"], []).append(row)
        for op, rows in by_operator.items():
            seconds = [float(np.median(row["samples"])) for row in rows if row["status"] == "OK"]
            found[f"{file}: {op}"] = {
                "rows": len(rows),
                "this_run": sum(row.get("run") == run for row in rows),
                "statuses": dict(Counter(row["status"] for row in rows)),
                "fastest_s": min(seconds, default=None),
                "slowest_s": max(seconds, default=None),
            }
            total += len(rows)
    return {"operators": found, "rows": total}
