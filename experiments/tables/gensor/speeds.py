"""Speeds of strategies relative to a reference, by operator and by class, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.comparison.retime import TORCH, Comparison
from experiments.comparison.summary import ratio
from experiments.statistics import bootstrap
from experiments.tables.gensor.searches import LIVE, Contender, Searches
from gensor_gym.operators.types import Operator

FEW = 3
"""Least number of operators for a bootstrap."""


@dataclass(frozen=True)
class Speeds:
    """Speeds of every name (strategies, and torch if it was timed) on every operator with every seed.

    `logs` [operators, seeds] are logarithms of the reference's time over the name's own time, NaN if missing. `low` and `high`
    are the ends of 95 % intervals over the rounds of timing. `seconds` are medians. With the model, an interval has length zero.
    """

    operators: tuple[Operator, ...]
    live: bool
    logs: dict[str, np.ndarray]
    low: dict[str, np.ndarray]
    high: dict[str, np.ndarray]
    seconds: dict[str, np.ndarray]

    def class_logs(self, name: str, of: str | None) -> np.ndarray:
        """`logs` of a class (None: all) on the operators for which every name has a value, so that means are comparable."""
        return self.logs[name][self.complete(of)]

    def complete(self, of: str | None) -> np.ndarray:
        """Mask bool [operators] of a class's operators (None: all) on which every name has a time with every seed."""
        whole = np.all([np.isfinite(logs).all(axis=1) for logs in self.logs.values()], axis=0)
        return whole & np.array([of is None or op.name == of for op in self.operators])

    def cell(self, name: str, at: int) -> str | None:
        """Text of the geometric mean over seeds on one operator; if timed, with the widest interval over seeds."""
        logs = self.logs[name][at]
        if not np.isfinite(logs).any():
            return None
        text = f"{np.exp(np.nanmean(logs)):.2f}"
        return f"{text} [{np.nanmin(self.low[name][at]):.2f}, {np.nanmax(self.high[name][at]):.2f}]" if self.live else text


def speeds_of(searches: Searches, operators: Sequence[Operator], contenders: Sequence[Contender], reference: str) -> Speeds:
    """Search, time all winners for an operator together, and compare with the contender named `reference`."""
    found, seeds = searches.run(operators, contenders), searches.seeds
    names = [one.name for one in contenders] + ([TORCH] if searches.tier == LIVE else [])
    shape = (len(operators), len(seeds))
    made = {field: {name: np.full(shape, np.nan) for name in names} for field in ("logs", "low", "high", "seconds")}
    for i, op in enumerate(operators):
        timed = searches.retimed(op, {_label(name, seed): of.best for (at, name, seed), of in found.items() if at == op})
        for j, seed in enumerate(seeds):
            for name in names:
                _fill(made, timed, (i, j), name, seed, reference)
    if TORCH in names and np.isnan(made["seconds"][TORCH]).all():
        for values in made.values():
            del values[TORCH]
    return Speeds(tuple(operators), searches.tier == LIVE, **made)


def _fill(
    made: dict[str, dict[str, np.ndarray]], timed: Comparison, at: tuple[int, int], name: str, seed: int, reference: str
) -> None:
    """Enter the values of one name and seed, if it and the reference were timed."""
    mine, other = (timed.samples.get(_label(of, seed)) for of in (name, reference))
    if mine:
        made["seconds"][name][at] = float(np.median(mine))
    if mine and other:
        found = ratio(other, mine)
        made["logs"][name][at] = np.log(found["median"])
        made["low"][name][at], made["high"][name][at] = found["low"], found["high"]


def mean_text(logs: np.ndarray) -> str:
    """Text of the geometric mean exp(mean(logs)) of logs [operators, seeds], with its bootstrap interval.

    Fewer than FEW operators have no interval; without any operator the text is a dash.
    """
    if not logs.size:
        return "-"
    text = f"{np.exp(np.mean(logs)):.2f}"
    if len(logs) < FEW:
        return text
    low, high = bootstrap(np.mean, logs)
    return f"{text} [{np.exp(low):.2f}, {np.exp(high):.2f}]"


def rates(speeds: Speeds, name: str) -> list[float | None]:
    """TFLOP/s on every operator, from the geometric mean over seeds of the seconds; None if missing."""
    rows = zip(speeds.operators, speeds.seconds[name], strict=True)
    return [op.flops / float(np.exp(np.nanmean(np.log(s)))) / 1e12 if np.isfinite(s).any() else None for op, s in rows]


def _label(name: str, seed: int) -> str:
    """Label of a winner in a comparison; torch has no seed."""
    return name if name == TORCH else f"{name}/{seed}"
