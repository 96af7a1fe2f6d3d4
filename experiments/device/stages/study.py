"""Stage: the precompiled programs of a study are verified and timed, then an operator's winners are timed together with torch.

The order is operator by operator as in the archive, so that a cut leaves whole operators; further proposals of some arms come
after all operators. results/gpu_study/README.md has the questions.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from experiments.device.archive.packed import Archive, open_archive
from experiments.device.context import Context, StageJournal
from experiments.device.work.prebuilt import Bench, side_by_side
from experiments.device.work.progress import Progress
from experiments.device.work.trials import facts
from gensor_gym import hardware
from gensor_gym.measure.measurement import Status

TRIALS, WINNERS = "trials.jsonl", "together.jsonl"
WORKERS = 3
"""Number of workers: one has the GPU while the others draw inputs and load kernels."""
FIRST = 4
"""Number of each arm's first programs among which its winner is chosen."""
ROUNDS = 9

Row = Mapping[str, Any]


def run(context: Context) -> dict[str, object]:
    """Time the kernels of the archive's group `study`; return counts by status."""
    run_group(context, "study", (TRIALS, WINNERS), FIRST)
    return digest(context)


def run_group(context: Context, group: str, files: tuple[str, str], first: int) -> None:
    """Time each kernel of a group with a row, and each operator's winners among the `first` programs of each arm with another."""
    archive, hw = open_archive(), hardware.get(context.hardware)
    turns = in_turns([row for row in archive.proposals if row["group"] == group], first)
    progress = Progress("kernels timed")
    with closing(context.journal(files[0])) as trials, closing(context.journal(files[1])) as winners:

        def time(bench: Bench, proposals: Sequence[Row]) -> None:
            _time(bench, proposals, archive, context, trials, progress)
            if context.left > 0 and proposals[0]["rank"] <= first:
                _together(bench, proposals, archive, trials, winners, first)

        side_by_side(turns, time, hw, WORKERS, lambda: context.left > 0)


def in_turns(proposals: Iterable[Row], first: int) -> list[list[Row]]:
    """Each operator's first proposals of every arm by rank, in the order of operators, then each operator's further proposals."""
    early, late = defaultdict[str, list[Row]](list), defaultdict[str, list[Row]](list)
    for row in proposals:
        (early if row["rank"] <= first else late)[row["operator"]].append(row)
    return [sorted(rows, key=lambda row: row["rank"]) for part in (early, late) for rows in part.values()]


def _time(
    bench: Bench, proposals: Sequence[Row], archive: Archive, context: Context, journal: StageJournal, progress: Progress
) -> None:
    """Time the kernels of an operator by rank over all arms, as long as there is time."""
    for row in proposals:
        key = _key(row)
        if context.left <= 0:
            return
        if not row["digest"] or row["status"] or not journal.pending(key):
            continue
        journal.begin(key)
        measurement = bench.trial(archive.built(row["digest"]))
        about = {"group": row["group"], "operator": row["operator"], "schedule": row["schedule"]}
        journal.put(key, {**about, **facts(measurement)})
        progress.count(row["operator"])


def _together(
    bench: Bench, proposals: Sequence[Row], archive: Archive, trials: StageJournal, winners: StageJournal, first: int
) -> None:
    """Time the fastest of each arm's first programs, and torch, in interleaved rounds; several arms may share a kernel."""
    operator = proposals[0]["operator"]
    if not winners.pending(operator):
        return
    winners.begin(operator)
    found = sorted({digest for digest in _winners(proposals, trials, first) if digest})
    if not found:
        winners.put(operator, {"operator": operator, "error": "no program ran well"})
        return
    samples, errors = bench.together({digest: archive.built(digest) for digest in found}, ROUNDS)
    winners.put(operator, {"operator": operator, "samples": samples, **errors})


def _winners(proposals: Sequence[Row], trials: StageJournal, first: int) -> list[str]:
    """Digest of the fastest program of each arm and seed; empty text if none succeeded."""
    best: dict[tuple[str, int], tuple[float, str]] = {}
    for row in proposals:
        if row["rank"] <= first and row["digest"]:
            seconds = _seconds(trials.done.get(_key(row), {}))
            arm = row["arm"], row["seed"]
            best[arm] = min(best.get(arm, (math.inf, "")), (seconds, row["digest"] if seconds < math.inf else ""))
    return [digest for _, digest in best.values()]


def _seconds(row: Row) -> float:
    """Median of a trial's samples; infinite if it failed."""
    samples = row.get("samples")
    return statistics.median_high(samples) if row.get("status") == Status.OK.value and samples else math.inf


def _key(row: Row) -> str:
    """Key of a trial; a program of several arms has one trial."""
    return f"{row['operator']} {row['digest']}"


def digest(context: Context, files: tuple[str, str] = (TRIALS, WINNERS)) -> dict[str, object]:
    """Numbers of kernels timed, by status, and of operators compared."""
    trials, winners = (context.rows(file) for file in files)
    statuses: dict[str, int] = defaultdict(int)
    for row in trials:
        statuses[row["status"]] += 1
    return {
        "kernels": len(trials), "statuses": dict(statuses), "operators_compared": sum("samples" in row for row in winners),
        "without_torch": sum("torch_error" in row for row in winners),
    }  # fmt: skip
