"""Scores of a study's arms from raw rows: the time of the fastest of each arm's first programs on every operator.

An arm is a strategy, which searches with one or several seeds. The plan is in results/gpu_study/README.md.
"""

from __future__ import annotations

import math
import statistics as plain
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from agents.runs.journal import read_rows
from experiments.device.archive.arms import fastest, seconds_of

REFERENCE = "markov_ext"
LEARNED = ("learned", "columns", "in_turn")
"""Names of learned arms; a study is about the first of them that it has."""
FIRST = 4
"""Number of programs that every arm proposes on every operator."""
RANKS = (1, FIRST, 10)
"""Numbers of first programs for which arms are compared; only some operators have ten."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Timed:
    """All rows of a study: proposals, trials by (operator, digest), and interleaved rounds by operator.

    An arm is a strategy that searches with several seeds; what it proposes is timed.
    """

    proposals: Sequence[Row]
    trials: Mapping[tuple[str, str], Row]
    together: Mapping[str, Row]
    by_trials_alone: bool = False
    """Whether times come from trials only, and interleaved rounds are ignored."""

    @cached_property
    def _cells(self) -> dict[tuple[str, str, int], list[Row]]:
        """Proposals by (operator, arm, seed)."""
        found: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
        for row in self.proposals:
            found[row["operator"], row["arm"], row["seed"]].append(row)
        return dict(found)

    @cached_property
    def learned(self) -> str:
        """Name of the learned arm that the study is about; raises ValueError if no arm is learned."""
        names = {row["arm"] for row in self.proposals}
        if not (found := [name for name in LEARNED if name in names]):
            raise ValueError(f"a study of the arms {', '.join(sorted(names))}: expected one of {', '.join(LEARNED)}")
        return found[0]

    @cached_property
    def arms(self) -> dict[str, list[int]]:
        """Arms with their seeds: the reference first, then the learned arm, then the others."""
        names = sorted({row["arm"] for row in self.proposals}, key=lambda arm: (arm != REFERENCE, arm != self.learned, arm))
        return {arm: sorted({seed for _, name, seed in self._cells if name == arm}) for arm in names}

    @cached_property
    def _asked(self) -> list[tuple[str, int]]:
        return [(arm, seed) for arm, seeds in self.arms.items() for seed in seeds]

    @cached_property
    def operators(self) -> list[str]:
        """Operators in the order of the study."""
        return list(dict.fromkeys(row["operator"] for row in self.proposals))

    @cached_property
    def tried(self) -> list[str]:
        """Operators whose first `FIRST` proposals were all timed, for every arm and seed.

        Operators whose times an arm learned from are left out.
        """
        left = {row["operator"] for row in self.proposals if row.get("seen")} | self._untried(FIRST)
        return [op for op in self.operators if op not in left and all((op, *one) in self._cells for one in self._asked)]

    @cached_property
    def whole(self) -> list[str]:
        """Operators of `tried` on which at least one program succeeded; other operators do not count."""
        return [op for op in self.tried if op in self.slowest]

    def deep(self, k: int) -> list[str]:
        """Return the operators of `whole` for which an arm proposed k programs and all proposals up to rank k were timed."""
        most: dict[str, int] = defaultdict(int)
        for row in self.proposals:
            most[row["operator"]] = max(most[row["operator"]], row["rank"])
        left = self._untried(k)
        return [op for op in self.whole if most[op] >= k and op not in left]

    def seconds(self, op: str, arm: str, seed: int, k: int) -> float:
        """Return the seconds of the fastest of an arm's first k proposals with a seed; infinite if none succeeded."""
        best = self._fastest(op, arm, seed, k)
        again = self._rounds.get(op, {}) if k == FIRST and not self.by_trials_alone else {}
        return plain.median(again[best]) if best in again else self._trial(op, best)

    def torch(self, op: str) -> float:
        """Return torch's seconds for an operator, with its faster layout; infinite if it was not timed."""
        samples = self.together.get(op, {}).get("samples", {})
        return min((plain.median(values) for name, values in samples.items() if name.startswith("torch")), default=math.inf)

    @cached_property
    def slowest(self) -> dict[str, float]:
        """Operator -> seconds of its slowest successful program."""
        found: dict[str, float] = defaultdict(float)
        for row in self.proposals:
            if (seconds := self._trial(row["operator"], row["digest"])) < math.inf:
                found[row["operator"]] = max(found[row["operator"]], seconds)
        return dict(found)

    def logs(self, arm: str, ops: Sequence[str], k: int, filled: bool = True) -> np.ndarray:
        """Return log seconds of an arm's fastest of k programs, float64 [operators, seeds].

        A missing time is the operator's `slowest` if `filled`, else NaN.
        """
        found = np.array([[self.seconds(op, arm, seed, k) for seed in self.arms[arm]] for op in ops]).reshape(len(ops), -1)
        other = np.array([self.slowest.get(op, math.inf) if filled else math.nan for op in ops]).reshape(-1, 1)
        logs: np.ndarray = np.log(np.where(np.isinf(found), other, found))
        return logs

    def statuses(self) -> dict[str, Counter[str]]:
        """Count each arm's proposals by status."""
        found: dict[str, Counter[str]] = {arm: Counter() for arm in self.arms}
        for row in self.proposals:
            trial = self.trials.get((row["operator"], row["digest"]), {})
            found[row["arm"]][row["status"] or trial.get("status", "not tried")] += 1
        return found

    def cost(self, arm: str) -> tuple[float, float]:
        """Return (seconds of construction, evaluations of the model) of an arm's search, each the median over its searches."""
        ones = [rows[0] for (_, name, _), rows in self._cells.items() if name == arm]
        return plain.median(row["construct_s"] for row in ones), plain.median(row["evaluations"] for row in ones)

    def without(self, arm: str, ops: Sequence[str]) -> int:
        """Return the number of operators on which none of an arm's first `FIRST` programs succeeded for some seed."""
        return sum(any(self.seconds(op, arm, seed, FIRST) == math.inf for seed in self.arms[arm]) for op in ops)

    @cached_property
    def _rounds(self) -> dict[str, Mapping[str, Sequence[float]]]:
        """Samples of the interleaved rounds by operator and kernel.

        Operators for which an arm's winner has no samples are left out, so that no operator mixes times of rounds and of trials.
        """
        found = {op: row.get("samples") or {} for op, row in self.together.items()}
        return {
            op: samples for op, samples in found.items()
            if all(samples.get(best) for one in self._asked if (best := self._fastest(op, *one, FIRST)))
        }  # fmt: skip

    def _fastest(self, op: str, arm: str, seed: int, k: int) -> str:
        """Return the digest of the kernel with the shortest trial among an arm's first k programs; empty if none succeeded."""
        return fastest((row for row in self._cells.get((op, arm, seed), ()) if row["rank"] <= k), self.trials)

    def _trial(self, op: str, digest: str) -> float:
        return seconds_of(self.trials.get((op, digest), {}))

    def _untried(self, k: int) -> set[str]:
        """Return the operators with a proposal up to rank k whose kernel still needs a trial."""
        wanted = ((row["operator"], row["digest"]) for row in self.proposals if row["rank"] <= k and not row["status"])
        return {op for op, digest in wanted if digest and (op, digest) not in self.trials}


def has_study(folder: Path) -> bool:
    """Return whether a folder contains the rows of a study."""
    proposals, trials = (read_rows(folder / f"{name}.jsonl") for name in ("proposals", "trials"))
    return any(row["group"] == "study" for row in proposals) and bool(trials)


def read(folder: Path, by_trials_alone: bool = False) -> Timed:
    """Read the rows in a folder, gzipped or not; raise ValueError if it has no study.

    With `by_trials_alone`, times come from trials only and not from the interleaved rounds.
    """
    proposals, trials, together = (read_rows(folder / f"{name}.jsonl") for name in ("proposals", "trials", "together"))
    proposals = [row for row in proposals if row["group"] == "study"]
    if not proposals or not trials:
        raise ValueError(f"{folder}: expected proposals.jsonl[.gz] and trials.jsonl[.gz] of a study")
    known = {(row["operator"], row["digest"]): row for row in trials}
    return Timed(proposals, known, {row["operator"]: row for row in together}, by_trials_alone)
