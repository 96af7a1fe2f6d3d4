"""Stage that verifies precompiled kernels of kinds that no device has run; their times are meaningless here."""

from __future__ import annotations

from contextlib import closing

from experiments.device.archive.packed import open_archive
from experiments.device.context import Context
from experiments.device.stages.correctness import checked
from experiments.device.work.prebuilt import CHECK, Bench, facts, side_by_side
from experiments.device.work.progress import Progress
from gensor_gym import hardware
from gensor_gym.measure.measurement import Status

FILE = "first_contact.jsonl"
WORKERS = 2


def run(context: Context) -> dict[str, object]:
    """Verify as many kernels as the time allows in the archive's order, write a row for each, and return the counts."""
    archive, hw = open_archive(), hardware.get(context.hardware)
    rows = [row for row in archive.proposals if row["group"] == "never_run" and row["digest"] in archive.rows]
    progress = Progress("kernels checked")
    with closing(context.journal(FILE)) as journal:

        def check(bench: Bench, row: dict[str, object]) -> None:
            digest = str(row["digest"])
            if not journal.pending(digest):
                return
            measurement = bench.trial(archive.built(digest), CHECK)
            journal.put(digest, {"operator": row["operator"], "schedule": row["schedule"], **facts(measurement)})
            progress.count("wrong" if measurement.status is Status.WRONG_ANSWER else "")

        side_by_side(rows, check, hw, WORKERS, lambda: context.left > 0)
    return digest(context)


def digest(context: Context) -> dict[str, object]:
    """Count the rows by status; return the counts and the first failures."""
    return checked(context.rows(FILE))
