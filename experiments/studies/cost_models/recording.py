"""Replay of a recording under budgets of programs: how good is a fitted model of time after each budget?

Programs are recorded in units: all programs of an operator, or some of them. The order of units is random, or begins with the
units on which an ensemble disagrees most. TCL (arXiv 2604.12891) samples by representativeness, diversity and uncertainty; our
reconstruction uses uncertainty alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from agents.hybrids.correction import Correction
from agents.training.learn_correction import Observed

MEMBERS = 2
"""Number of fitted models in an ensemble; each has two boosters, whose predictions count separately."""
SOME = 4
"""Number of programs in a unit of recording that is not a whole operator."""


def disagreement(predicted: np.ndarray) -> float:
    """Return how much an ensemble disagrees on programs: the mean over them of the standard deviation among its members.

    `predicted` [members, programs] is first centred within each member.
    """
    return float((predicted - predicted.mean(axis=1, keepdims=True)).std(axis=0).mean())


ORDERS: dict[str, tuple[bool, Callable[[np.ndarray], float] | None]] = {
    "operators_random": (True, None), "operators_disagreement": (True, disagreement),
    "some_random": (False, None), "some_disagreement": (False, disagreement),
}  # fmt: skip
"""Order of recording -> (whether a unit is a whole operator, score of a unit).

Units with the highest score are recorded first; without a score (None), units come at random.
"""


def replay(
    observed: Observed, held_out: np.ndarray, order: str, seed: int, budgets: Sequence[int]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Record programs until each budget is spent and yield (recorded, predicted) after each.

    `recorded` are indices of programs, and `predicted` [B] the log seconds of all programs by a model fitted to them. `held_out`
    bool [B] marks programs that are never recorded. The first budget is spent at random. After the last budget, only held-out
    programs are predicted.
    """
    whole, score = ORDERS[order]
    rng = np.random.default_rng(seed)
    units = _units(observed.groups, ~held_out, whole, rng)
    recorded: list[int] = []
    predicted = np.zeros((2 * MEMBERS, len(observed.times)))
    for budget in budgets:
        if recorded and score is not None:
            units.sort(key=lambda unit: score(predicted[:, unit]))
        while units and len(recorded) < budget:
            recorded.extend(units.pop())
        at = np.sort(recorded)
        asked = np.flatnonzero(held_out | (budget != budgets[-1]))  # nothing is chosen after the last budget
        predicted[:, asked] = _ensemble(observed, at, asked, seed)
        yield at, predicted.mean(axis=0)


def _units(groups: np.ndarray, chosen: np.ndarray, whole: bool, rng: np.random.Generator) -> list[np.ndarray]:
    """Divide the chosen programs into units, in random order: all programs of an operator if `whole`, else `SOME` of them.

    The last unit of an operator may be smaller.
    """
    units: list[np.ndarray] = []
    for group in np.unique(groups[chosen]):
        mine = rng.permutation(np.flatnonzero(chosen & (groups == group)))
        units += [mine] if whole else np.split(mine, range(SOME, len(mine), SOME))
    return [units[i] for i in rng.permutation(len(units))]


def _ensemble(observed: Observed, at: np.ndarray, asked: np.ndarray, seed: int) -> np.ndarray:
    """Fit an ensemble to the programs `at` and return each booster's predictions for the programs `asked`.

    They are log seconds [2 * MEMBERS, N], right up to a constant for each operator.
    """
    dense = np.unique(observed.groups[at], return_inverse=True)[1]
    found, features = [], observed.features[asked]
    for member in range(MEMBERS):
        one = Correction.fit(observed.features[at], observed.times[at], dense, MEMBERS * seed + member)
        found += [features[:, 0] + one.residual.inplace_predict(features), one.direct.inplace_predict(features)]
    return np.array(found, dtype=np.float64)
