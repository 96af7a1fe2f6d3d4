"""Replay of a recording under a budget of programs: what a model of time knows after each, if the next programs are chosen.

Programs are recorded by unit: all of an operator, or some of them. Units come at random, or those come first on which an ensemble
disagrees most, or where it expects to lose most. TCL (arXiv 2604.12891) chooses the programs of a data set actively; both scores
are our reconstruction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from agents.hybrids.correction import Correction
from agents.training.learn_correction import Observed

MEMBERS = 2
"""Corrections of an ensemble; each has two boosters, whose predictions count one by one."""
SOME = 4
"""Programs of a unit that is not a whole operator."""


def disagreement(predicted: np.ndarray) -> float:
    """Mean standard deviation among members of a unit's predicted logarithms [members, programs], less each member's mean."""
    return float((predicted - predicted.mean(axis=1, keepdims=True)).std(axis=0).mean())


def expected_regret(predicted: np.ndarray) -> float:
    """What the ensemble's first choice of a unit loses by its members' predictions [members, programs], on average."""
    first = (predicted - predicted.mean(axis=1, keepdims=True)).mean(axis=0).argmin()
    return float((predicted[:, first] - predicted.min(axis=1)).mean())


ORDERS: dict[str, tuple[bool, Callable[[np.ndarray], float] | None]] = {
    "operators_random": (True, None), "operators_disagreement": (True, disagreement), "operators_regret": (True, expected_regret),
    "some_random": (False, None), "some_disagreement": (False, disagreement),
}  # fmt: skip
"""Name -> (whether a unit is a whole operator, score of the units that come first; None for a random order)."""


def replay(
    observed: Observed, held_out: np.ndarray, order: str, seed: int, budgets: Sequence[int]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Record until each budget of programs is spent; yield (recorded programs, predicted logarithms of all programs [B]).

    `held_out` bool [B] marks programs that are never recorded. The first budget is spent at random.
    """
    whole, score = ORDERS[order]
    rng = np.random.default_rng(seed)
    units = _units(observed.groups, ~held_out, whole, rng)
    recorded: list[int] = []
    predicted = np.zeros((1, len(observed.times)))
    for budget in budgets:
        if recorded and score is not None:
            units.sort(key=lambda unit: score(predicted[:, unit]))
        while units and len(recorded) < budget:
            recorded.extend(units.pop())
        at = np.sort(recorded)
        predicted = _ensemble(observed, at, seed)
        yield at, predicted.mean(axis=0)


def _units(groups: np.ndarray, chosen: np.ndarray, whole: bool, rng: np.random.Generator) -> list[np.ndarray]:
    """The units of the chosen programs, in random order; a rest of fewer than SOME programs is a unit, too."""
    units: list[np.ndarray] = []
    for group in np.unique(groups[chosen]):
        mine = rng.permutation(np.flatnonzero(chosen & (groups == group)))
        units += [mine] if whole else np.split(mine, range(SOME, len(mine), SOME))
    return [units[i] for i in rng.permutation(len(units))]


def _ensemble(observed: Observed, at: np.ndarray, seed: int) -> np.ndarray:
    """Predicted logarithms of all programs, up to a summand of the operator, by each booster [2 * MEMBERS, B]."""
    dense = np.unique(observed.groups[at], return_inverse=True)[1]
    found = []
    for member in range(MEMBERS):
        one = Correction.fit(observed.features[at], observed.times[at], dense, MEMBERS * seed + member)
        found += [
            observed.features[:, 0] + one.residual.inplace_predict(observed.features),
            one.direct.inplace_predict(observed.features),
        ]
    return np.array(found, dtype=np.float64)
