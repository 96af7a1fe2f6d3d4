"""Scores of the arms from raw rows: the time of the fastest of each arm's first programs on every operator.

The plan is in results/gpu_study/README.md.
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
"""Possible learned arms; a study is about the first of them that it has."""
FIRST = 4
"""Number of programs that every arm has on every operator."""
RANKS = (1, FIRST, 10)
"""Numbers of programs at which arms are compared. Only some operators have ten."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Timed:
    """All rows of a study: proposals, trials by (operator, digest), and interleaved rounds by operator."""

    proposals: Sequence[Row]
    trials: Mapping[tuple[str, str], Row]
    together: Mapping[str, Row]
    by_trials_alone: bool = False
    """Whether the interleaved rounds are ignored."""

    @cached_property
    def _cells(self) -> dict[tuple[str, str, int], list[Row]]:
        """Proposals by (operator, arm, seed)."""
        found: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
        for row in self.proposals:
            found[row["operator"], row["arm"], row["seed"]].append(row)
        return dict(found)

    @cached_property
    def learned(self) -> str:
        """Name of the learned arm that the study is about; ValueError if no arm is learned."""
        names = {row["arm"] for row in self.proposals}
        if not (found := [name for name in LEARNED if name in names]):
            raise ValueError(f"a study of the arms {', '.join(sorted(names))}: expected one of {', '.join(LEARNED)}")
        return found[0]

    @cached_property
    def arms(self) -> dict[str, list[int]]:
        """Arm -> its seeds, the reference first."""
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
        """Operators for which every arm and seed made proposals, and whose proposals up to rank FIRST were all tried.

        Operators whose times an arm learned from are left out.
        """
        left = {row["operator"] for row in self.proposals if row.get("seen")} | self._untried(FIRST)
        return [op for op in self.operators if op not in left and all((op, *one) in self._cells for one in self._asked)]

    @cached_property
    def whole(self) -> list[str]:
        """Tried operators on which at least one program succeeded; other operators do not count."""
        return [op for op in self.tried if op in self.slowest]

    def deep(self, k: int) -> list[str]:
        """Operators of `whole` for which an arm proposed k programs, and whose proposals up to rank k were all tried."""
        most: dict[str, int] = defaultdict(int)
        for row in self.proposals:
            most[row["operator"]] = max(most[row["operator"]], row["rank"])
        left = self._untried(k)
        return [op for op in self.whole if most[op] >= k and op not in left]

    def seconds(self, op: str, arm: str, seed: int, k: int) -> float:
        """Seconds of the fastest of an arm's first k programs; infinite if none succeeded."""
        best = self._fastest(op, arm, seed, k)
        again = self._rounds.get(op, {}) if k == FIRST and not self.by_trials_alone else {}
        return plain.median(again[best]) if best in again else self._trial(op, best)

    def torch(self, op: str) -> float:
        """Seconds of torch with its faster layout; infinite if it was not timed."""
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
        """Logarithms of seconds, float64 [operators, seeds]. A missing time is `slowest` if `filled`, else NaN."""
        found = np.array([[self.seconds(op, arm, seed, k) for seed in self.arms[arm]] for op in ops]).reshape(len(ops), -1)
        other = np.array([self.slowest.get(op, math.inf) if filled else math.nan for op in ops]).reshape(-1, 1)
        logs: np.ndarray = np.log(np.where(np.isinf(found), other, found))
        return logs

    def statuses(self) -> dict[str, Counter[str]]:
        """Numbers of proposals by status, for each arm."""
        found: dict[str, Counter[str]] = {arm: Counter() for arm in self.arms}
        for row in self.proposals:
            trial = self.trials.get((row["operator"], row["digest"]), {})
            found[row["arm"]][row["status"] or trial.get("status", "not tried")] += 1
        return found

    def cost(self, arm: str) -> tuple[float, float]:
        """(seconds of construction, evaluations of the model) of an arm, each a median over its searches."""
        ones = [rows[0] for (_, name, _), rows in self._cells.items() if name == arm]
        return plain.median(row["construct_s"] for row in ones), plain.median(row["evaluations"] for row in ones)

    def without(self, arm: str, ops: Sequence[str]) -> int:
        """Number of operators on which an arm has no time with some seed, for k = FIRST."""
        return sum(any(self.seconds(op, arm, seed, FIRST) == math.inf for seed in self.arms[arm]) for op in ops)

    @cached_property
    def _rounds(self) -> dict[str, Mapping[str, Sequence[float]]]:
        """Operator -> interleaved samples by kernel, if all arms' winners have samples: no operator mixes rounds and trials."""
        found = {op: row.get("samples") or {} for op, row in self.together.items()}
        return {
            op: samples for op, samples in found.items()
            if all(samples.get(best) for one in self._asked if (best := self._fastest(op, *one, FIRST)))
        }  # fmt: skip

    def _fastest(self, op: str, arm: str, seed: int, k: int) -> str:
        """Digest of the kernel with the shortest trial among an arm's first k programs; empty if none succeeded."""
        return fastest((row for row in self._cells.get((op, arm, seed), ()) if row["rank"] <= k), self.trials)

    def _trial(self, op: str, digest: str) -> float:
        return seconds_of(self.trials.get((op, digest), {}))

    def _untried(self, k: int) -> set[str]:
        """Operators with a proposal up to rank k that has not been tried and needs a trial."""
        wanted = ((row["operator"], row["digest"]) for row in self.proposals if row["rank"] <= k and not row["status"])
        return {op for op, digest in wanted if digest and (op, digest) not in self.trials}


def has_study(folder: Path) -> bool:
    """Whether a folder contains the rows of a study."""
    proposals, trials = (read_rows(folder / f"{name}.jsonl") for name in ("proposals", "trials"))
    return any(row["group"] == "study" for row in proposals) and bool(trials)


def read(folder: Path, by_trials_alone: bool = False) -> Timed:
    """Read the rows of a folder, gzipped or not. ValueError if it has no study."""
    proposals, trials, together = (read_rows(folder / f"{name}.jsonl") for name in ("proposals", "trials", "together"))
    proposals = [row for row in proposals if row["group"] == "study"]
    if not proposals or not trials:
        raise ValueError(f"{folder}: expected proposals.jsonl[.gz] and trials.jsonl[.gz] of a study")
    known = {(row["operator"], row["digest"]): row for row in trials}
    return Timed(proposals, known, {row["operator"]: row for row in together}, by_trials_alone)
