"""Stage of a GPU run that verifies kernels against float64 references: several of each operator of `FAMILIES`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from experiments.device.context import Context
from experiments.device.stages.families import BYTES, FAMILIES, FLOAT8, drawn, features
from experiments.device.work.makers import open_makers
from experiments.device.work.prebuilt import CHECK, Bench, Compilers, facts, side_by_side
from experiments.device.work.progress import Progress
from gensor_gym import hardware, operators
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.measurement import Status

FILE = "correctness.jsonl"
PER_OPERATOR = 14
EACH = 4
"""Number of kernels of an operator in each round over the operators; 8-bit operators have all of theirs in the first."""
ANSWERED = (Status.OK.value, Status.IMPLAUSIBLE.value)
"""Statuses of kernels whose answer is right. An implausible time counts as right: times are meaningless in this stage."""
WORKERS = 3

Part = tuple[str, slice]
"""(operator, which of its drawn kernels)."""


def run(context: Context) -> dict[str, object]:
    """Verify as many kernels as the time allows, write a row for each, and return a summary of the rows (`digest`)."""
    hw, progress, wrong = hardware.get(context.hardware), Progress("kernels checked"), Counter[Status]()
    with closing(Compilers()) as compilers, closing(context.journal(FILE)) as journal, open_makers() as makers:
        jobs = {text: makers.submit(drawn, text, hw.name, context.seed, PER_OPERATOR) for text in FAMILIES}

        def check(bench: Bench, part: Part) -> None:
            text, places = part
            op = operators.parse(text)
            programs = [one for one in jobs[text].result()[places] if journal.pending(f"{op} {one[0]}")]
            for (schedule, made), built in [(one, compilers.submit(one[1])) for one in programs]:
                if context.left <= 0:
                    return
                measurement = bench.trial(built.result(), CHECK)
                row = {"operator": str(op), "schedule": str(schedule), "features": sorted(features(schedule, made))}
                if measurement.status.value not in ANSWERED:
                    row["source"] = made.source if isinstance(made, Kernel) else ""
                journal.put(f"{op} {schedule}", {**row, **facts(measurement)})
                wrong[measurement.status] += 1
                progress.count(f"{wrong[Status.WRONG_ANSWER]} wrong")

        side_by_side(parts(), check, hw, WORKERS, lambda: context.left > 0)
    return digest(context)


def parts() -> Iterator[Part]:
    """Yield parts of the work: a few kernels of each operator, then the next few of each, and so on."""
    for begin in range(0, PER_OPERATOR, EACH):
        for text in FAMILIES:
            if text not in (*BYTES, *FLOAT8):
                yield text, slice(begin, begin + EACH)
            elif begin == 0:
                yield text, slice(0, PER_OPERATOR)


def digest(context: Context) -> dict[str, object]:
    """Count the rows by status; return the counts, the first failures, and the features whose kernels were right."""
    rows = context.rows(FILE)
    answered = {name for row in rows if row["status"] in ANSWERED for name in row["features"]}
    return {**checked(rows), "operators": len({row["operator"] for row in rows}), "features_right": sorted(answered)}


def checked(rows: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Return the number of verified kernels, counts by status, and the first failures."""
    failed = [row for row in rows if row["status"] not in ANSWERED]
    return {
        "checked": len(rows), "right": len(rows) - len(failed), "statuses": dict(Counter(row["status"] for row in rows)),
        "failures": [{name: row[name] for name in ("operator", "schedule", "status", "error")} for row in failed[:20]],
    }  # fmt: skip
