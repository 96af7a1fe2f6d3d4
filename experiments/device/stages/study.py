"""Stage that verifies and times the precompiled programs of a study, then times each operator's winners together with torch.

The order is operator by operator as in the archive, so an early end leaves whole operators; further proposals of some arms (a
strategy with a seed) come after all operators. results/gpu_study/README.md states the questions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from experiments.device.archive.arms import winners
from experiments.device.archive.packed import VARIANT, Archive, open_archive
from experiments.device.context import Context, StageJournal
from experiments.device.work.prebuilt import Bench, facts, side_by_side
from experiments.device.work.progress import Progress
from gensor_gym import hardware
from gensor_gym.codegen.build import VARIANTS

TRIALS, TOGETHER = "trials.jsonl", "together.jsonl"
WORKERS = 3
"""Number of workers: one uses the GPU while the others draw inputs and load kernels."""
FIRST = 4
"""Number of an arm's first programs from which its winner is chosen."""
ROUNDS = 9

Row = Mapping[str, Any]


def run(context: Context) -> dict[str, object]:
    """Time the kernels of the archive's group `study`; return counts by status."""
    run_group(context, "study", (TRIALS, TOGETHER), FIRST)
    return digest(context)


def run_group(context: Context, group: str, files: tuple[str, str], first: int) -> None:
    """Time each kernel of a group of the archive, then the winners of each operator together; write all rows.

    The winner of an arm is the fastest of its `first` programs. `files` names the files of the trials and of the rounds
    in which winners are timed together.
    """
    archive, hw = open_archive(), hardware.get(context.hardware)
    turns = in_turns([row for row in archive.proposals if row["group"] == group], first)
    progress = Progress("kernels timed")
    with closing(context.journal(files[0])) as trials, closing(context.journal(files[1])) as together:

        def time(bench: Bench, proposals: Sequence[Row]) -> None:
            _time(bench, proposals, archive, context, trials, progress)
            if context.left > 0 and proposals[0]["rank"] <= first:
                together.once(proposals[0]["operator"], _together, bench, proposals, archive, trials, first)

        side_by_side(turns, time, hw, WORKERS, lambda: context.left > 0)


def in_turns(proposals: Iterable[Row], first: int) -> list[list[Row]]:
    """Return the proposals in the order of timing, in lists that each belong to one operator.

    First come every operator's proposals of rank at most `first`, sorted by rank, then every operator's further proposals.
    """
    early, late = defaultdict[str, list[Row]](list), defaultdict[str, list[Row]](list)
    for row in proposals:
        (early if row["rank"] <= first else late)[row["operator"]].append(row)
    return [sorted(rows, key=lambda row: row["rank"]) for part in (early, late) for rows in part.values()]


def _time(
    bench: Bench, proposals: Sequence[Row], archive: Archive, context: Context, journal: StageJournal, progress: Progress
) -> None:
    """Time the kernels of one operator, lowest rank first over all arms, until the time is up."""
    for row in proposals:
        key = _key(row)
        if context.left <= 0:
            return
        if not row["digest"] or row["status"] or not journal.pending(key):
            continue
        journal.begin(key)
        measurement = bench.trial(archive.built(row["digest"]))
        about = {"group": row["group"], "operator": row["operator"], "schedule": row["schedule"]}
        about |= {VARIANT: row["arm"]} if row["arm"] in VARIANTS else {}
        journal.put(key, {**about, **facts(measurement)})
        progress.count(row["operator"])


def _together(bench: Bench, proposals: Sequence[Row], archive: Archive, trials: StageJournal, first: int) -> dict[str, object]:
    """Time the fastest of each arm's first programs, and torch, in interleaved rounds; return a row with the samples.

    Several arms may have proposed the same kernel.
    """
    about = {"operator": proposals[0]["operator"]}
    timed = {(row["operator"], row["digest"]): trials.done.get(_key(row), {}) for row in proposals}
    if not (found := sorted(winners(proposals, timed, first))):
        return {**about, "error": "no program ran well"}
    samples, errors = bench.together({digest: archive.built(digest) for digest in found}, ROUNDS)
    return {**about, "samples": samples, **errors}


def _key(row: Row) -> str:
    """Return the key of a proposal's trial; a kernel that several arms proposed has one trial."""
    return f"{row['operator']} {row['digest']}"


def digest(context: Context, files: tuple[str, str] = (TRIALS, TOGETHER)) -> dict[str, object]:
    """Return the number of timed kernels, their counts by status, and the number of operators compared."""
    trials, together = (context.rows(file) for file in files)
    statuses = Counter(row["status"] for row in trials)
    return {
        "kernels": len(trials), "statuses": dict(statuses), "operators_compared": sum("samples" in row for row in together),
        "without_torch": sum("torch_error" in row for row in together),
    }  # fmt: skip
