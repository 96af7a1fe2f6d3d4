"""Stage 1: kernels of every family compared with their float64 references, on the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import Any

from experiments.device.context import Context, StageJournal
from experiments.device.stages.families import BYTES, FAMILIES, FLOAT8, drawn, features
from experiments.device.work.makers import Programs, open_makers
from experiments.device.work.pipeline import Pipeline, Work
from experiments.device.work.progress import Progress
from experiments.device.work.trials import CHECK, device_pipeline, facts
from gensor_gym import hardware, operators
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.device_trials import device_backends
from gensor_gym.measure.measurement import Status

FILE = "correctness.jsonl"
PER_OPERATOR = 14
EACH = 4
"""Kernels of an operator in a round over all operators; 8-bit operators have all their kernels in the first round."""
ANSWERED = (Status.OK.value, Status.IMPLAUSIBLE.value)
"""Statuses of kernels with a right answer; times are meaningless in this stage."""

Case = tuple[str, str, str, list[str]]
"""(operator, schedule, source of the kernel, features)."""


def run(context: Context) -> dict[str, object]:
    """Verify as many kernels as the time allows, with a row for each; return the digest."""
    hw = hardware.get(context.hardware)
    (backend,) = device_backends(CHECK)
    progress = Progress("kernels checked")
    wrong = 0
    with closing(backend), closing(context.journal(FILE)) as journal, open_makers() as makers:
        jobs = {text: makers.submit(drawn, text, hw.name, context.seed, PER_OPERATOR) for text in FAMILIES}
        work = cases(jobs, journal)
        pipeline: Pipeline[Case] = device_pipeline(backend, hw, lambda case: case[0])
        for case, measurement in pipeline.run(work, lambda: context.left > 0):
            op, schedule, source, uses = case
            row = {"operator": op, "schedule": schedule, "features": uses, **facts(measurement)}
            if measurement.status.value not in ANSWERED:
                row["source"] = source
            journal.put(f"{op} {schedule}", row)
            wrong += measurement.status is Status.WRONG_ANSWER
            progress.count(f"{wrong} wrong")
    return digest(context)


def cases(jobs: Mapping[str, Future[Programs]], journal: StageJournal) -> Iterator[Work[Case] | None]:
    """Yield some kernels of each operator, round after round; yield None while the next operator's kernels are being drawn."""
    for begin in range(0, PER_OPERATOR, EACH):
        for text, job in jobs.items():
            whole = slice(0, PER_OPERATOR if begin == 0 else 0)
            while not job.done():
                yield None
            for schedule, made in job.result()[whole if text in (*BYTES, *FLOAT8) else slice(begin, begin + EACH)]:
                op = operators.parse(text)
                if journal.pending(f"{op} {schedule}"):
                    source = made.source if isinstance(made, Kernel) else ""
                    yield (str(op), str(schedule), source, sorted(features(schedule, made))), made


def digest(context: Context) -> dict[str, object]:
    """Counts of the rows by status, and the failures."""
    rows = context.rows(FILE)
    answered = {name for row in rows if row["status"] in ANSWERED for name in row["features"]}
    return {**checked(rows), "operators": len({row["operator"] for row in rows}), "features_right": sorted(answered)}


def checked(rows: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Counts of kernels that were verified, by status, and the first failures."""
    failed = [row for row in rows if row["status"] not in ANSWERED]
    return {
        "checked": len(rows), "right": len(rows) - len(failed), "statuses": dict(Counter(row["status"] for row in rows)),
        "failures": [{name: row[name] for name in ("operator", "schedule", "status", "error")} for row in failed[:20]],
    }  # fmt: skip
