"""Scores of the arms from raw rows: seconds of the fastest of their first programs on every operator.

The plan: results/gpu_study/README.md.
"""

from __future__ import annotations

import math
import statistics as plain
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.journal import read_rows
from gensor_gym.measure.measurement import Status

REFERENCE = "markov_ext"
LEARNED = ("learned", "columns")
"""The learned arm of a study: the first of these that it has."""
FIRST = 4
"""Programs of every arm on every operator."""
RANKS = (1, FIRST, 10)
"""Numbers of programs that are compared: ten only on operators that have them."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Timed:
    """All rows of a study: proposals, trials by operator and digest, interleaved rounds by operator."""

    proposals: Sequence[Row]
    trials: Mapping[tuple[str, str], Row]
    together: Mapping[str, Row]
    by_trials_alone: bool = False
    """Whether interleaved rounds are left out."""

    @cached_property
    def _cells(self) -> dict[tuple[str, str, int], list[Row]]:
        """Proposals by operator, arm and seed."""
        found: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
        for row in self.proposals:
            found[row["operator"], row["arm"], row["seed"]].append(row)
        return dict(found)

    @cached_property
    def learned(self) -> str:
        """The learned arm that the study is about. ValueError where there is none."""
        names = {row["arm"] for row in self.proposals}
        if not (found := [name for name in LEARNED if name in names]):
            raise ValueError(f"a study of the arms {', '.join(sorted(names))}: expected one of {', '.join(LEARNED)}")
        return found[0]

    @cached_property
    def arms(self) -> dict[str, list[int]]:
        """Seeds of every arm, the reference first."""
        names = sorted({row["arm"] for row in self.proposals}, key=lambda arm: (arm != REFERENCE, arm != self.learned, arm))
        return {arm: sorted({seed for _, name, seed in self._cells if name == arm}) for arm in names}

    @cached_property
    def _asked(self) -> list[tuple[str, int]]:
        """Every arm with every seed of it."""
        return [(arm, seed) for arm, seeds in self.arms.items() for seed in seeds]

    @cached_property
    def operators(self) -> list[str]:
        """Operators in the order of the study."""
        return list(dict.fromkeys(row["operator"] for row in self.proposals))

    @cached_property
    def tried(self) -> list[str]:
        """Operators for which every arm and seed proposed, and whose proposals to rank FIRST were all tried."""
        left = {row["operator"] for row in self.proposals if row["rank"] <= FIRST and not self._answered(row)}
        return [op for op in self.operators if op not in left and all((op, *one) in self._cells for one in self._asked)]

    @cached_property
    def whole(self) -> list[str]:
        """Tried operators on which at least one program ran well: these count."""
        return [op for op in self.tried if self.slowest(op) < math.inf]

    def deep(self, k: int) -> list[str]:
        """Whole operators for which an arm proposed k programs, and whose proposals to rank k were all tried."""
        most: dict[str, int] = defaultdict(int)
        for row in self.proposals:
            most[row["operator"]] = max(most[row["operator"]], row["rank"])
        left = {row["operator"] for row in self.proposals if row["rank"] <= k and not self._answered(row)}
        return [op for op in self.whole if most[op] >= k and op not in left]

    def seconds(self, op: str, arm: str, seed: int, k: int) -> float:
        """Seconds of the fastest of an arm's first k programs; infinite where none ran well."""
        best = self._fastest(op, arm, seed, k)
        again = self._rounds.get(op, {}) if k == FIRST and not self.by_trials_alone else {}
        return plain.median(again[best]) if best in again else self._trial(op, best)

    def torch(self, op: str) -> float:
        """Seconds of torch's faster layout, infinite where it was not timed."""
        samples = self.together.get(op, {}).get("samples", {})
        return min((plain.median(values) for name, values in samples.items() if name.startswith("torch")), default=math.inf)

    def slowest(self, op: str) -> float:
        """Seconds of the slowest program that ran well; infinite where none did."""
        return self._slowest.get(op, math.inf)

    @cached_property
    def _slowest(self) -> dict[str, float]:
        """See `slowest`."""
        found: dict[str, float] = defaultdict(float)
        for row in self.proposals:
            if (seconds := self._trial(row["operator"], row["digest"])) < math.inf:
                found[row["operator"]] = max(found[row["operator"]], seconds)
        return dict(found)

    def logs(self, arm: str, ops: Sequence[str], k: int, filled: bool = True) -> np.ndarray:
        """Logarithms of seconds, float64 [operators, seeds]. Where an arm has none: `slowest` if `filled`, else NaN."""
        found = np.array([[self.seconds(op, arm, seed, k) for seed in self.arms[arm]] for op in ops]).reshape(len(ops), -1)
        other = np.array([self.slowest(op) if filled else math.nan for op in ops]).reshape(-1, 1)
        logs: np.ndarray = np.log(np.where(np.isinf(found), other, found))
        return logs

    def statuses(self) -> dict[str, Counter[str]]:
        """Ends of proposals, by arm."""
        found: dict[str, Counter[str]] = {arm: Counter() for arm in self.arms}
        for row in self.proposals:
            trial = self.trials.get((row["operator"], row["digest"]), {})
            found[row["arm"]][row["status"] or trial.get("status", "not tried")] += 1
        return found

    def cost(self, arm: str) -> tuple[float, float]:
        """Median over operators of an arm's seconds of construction and evaluations of the model."""
        ones = [rows[0] for (_, name, _), rows in self._cells.items() if name == arm]
        return plain.median(row["construct_s"] for row in ones), plain.median(row["evaluations"] for row in ones)

    def without(self, arm: str, ops: Sequence[str]) -> int:
        """Operators on which an arm has no time with some seed, k = FIRST."""
        return sum(any(self.seconds(op, arm, seed, FIRST) == math.inf for seed in self.arms[arm]) for op in ops)

    @cached_property
    def _rounds(self) -> dict[str, Mapping[str, Sequence[float]]]:
        """Interleaved samples of operators whose winners all have some, so that times of one operator are of one kind."""
        found = {op: row.get("samples") or {} for op, row in self.together.items()}
        return {
            op: samples for op, samples in found.items()
            if all(samples.get(best) for one in self._asked if (best := self._fastest(op, *one, FIRST)))
        }  # fmt: skip

    def _fastest(self, op: str, arm: str, seed: int, k: int) -> str:
        """Digest of the fastest of an arm's first k programs by their trials, as on the device; empty where none ran well."""
        return _fastest((row for row in self._cells.get((op, arm, seed), ()) if row["rank"] <= k), self.trials)

    def _trial(self, op: str, digest: str) -> float:
        """See `_seconds`."""
        return _seconds(self.trials.get((op, digest), {}))

    def _answered(self, row: Row) -> bool:
        """Whether a proposal needs no trial, or had one."""
        return bool(row["status"]) or not row["digest"] or (row["operator"], row["digest"]) in self.trials


def winners(proposals: Sequence[Row], trials: Mapping[tuple[str, str], Row], k: int) -> list[str]:
    """Digests of the fastest of each arm's and seed's first k programs, each once."""
    cells: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in proposals:
        if row["rank"] <= k:
            cells[row["arm"], row["seed"]].append(row)
    return list(dict.fromkeys(best for rows in cells.values() if (best := _fastest(rows, trials))))


def _fastest(rows: Iterable[Row], trials: Mapping[tuple[str, str], Row]) -> str:
    """Digest of the fastest of proposals by their trials; empty where none ran well."""
    timed = ((_seconds(trials.get((row["operator"], row["digest"]), {})), row["digest"]) for row in rows)
    seconds, best = min(timed, default=(math.inf, ""))
    return best if seconds < math.inf else ""


def _seconds(trial: Row) -> float:
    """Median of a trial's samples, the upper one of two as on the device; infinite where it did not run well."""
    samples = sorted(trial.get("samples") or [])
    return float(samples[len(samples) // 2]) if trial.get("status") == Status.OK.value and samples else math.inf


def has_study(folder: Path) -> bool:
    """Whether a folder holds the rows of a study."""
    return any(row["group"] == "study" for row in _rows(folder, "proposals")) and bool(_rows(folder, "trials"))


def read(folder: Path, by_trials_alone: bool = False) -> Timed:
    """The rows of a folder, gzipped or not. ValueError where it has none."""
    proposals, trials, together = (_rows(folder, name) for name in ("proposals", "trials", "together"))
    proposals = [row for row in proposals if row["group"] == "study"]
    if not proposals or not trials:
        raise ValueError(f"{folder}: expected proposals.jsonl[.gz] and trials.jsonl[.gz] of a study")
    known = {(row["operator"], row["digest"]): row for row in trials}
    return Timed(proposals, known, {row["operator"]: row for row in together}, by_trials_alone)


def _rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """Rows of a file, gzipped or not."""
    return read_rows(folder / f"{name}.jsonl.gz") or read_rows(folder / f"{name}.jsonl")
