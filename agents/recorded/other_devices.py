"""A search that tries configurations in the order of their times in recordings of the same kernel on other devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gensor_gym.spaces import TuningSession, TuningSpace, load_space

SLOWEST = 2.0
"""Log regret that counts for a configuration that failed on a device, as a multiple of the largest log regret there."""


@dataclass(frozen=True)
class OtherDevices:
    """Measure configurations in the order of their mean log regret, log(T / T*), on the other devices of `spaces`.

    Configurations that are not recorded on all of these devices are never measured.
    """

    spaces: Sequence[str] = ()
    """Files with recordings of the same kernel on other devices. Their times are read with the session's `timing`."""

    def __post_init__(self) -> None:
        if not isinstance(self.spaces, Sequence) or isinstance(self.spaces, str) or not self.spaces:
            raise ValueError(f"spaces is {self.spaces!r}: expected a list of one file or more, of the kernel on other devices")

    def search(self, session: TuningSession, rng: np.random.Generator) -> None:
        """Measure the configurations in the order of their results on the other devices, until the budget is spent."""
        graph, timing = session.graph, session.backend.timing
        for index in order(graph.space, [load_space(path) for path in self.spaces], timing):
            session.measure([graph.at(int(index))])


def order(space: TuningSpace, others: Sequence[TuningSpace], timing: str = "reported") -> np.ndarray:
    """Return the configurations of `space` that all `others` contain, in the order of their mean log(T / T*) in `others`.

    The result has indices int64 in `space`. Ties stay in the order of `space`. ValueError if the parameters differ, or if no
    configuration is in all `others`.
    """
    names = [p.name for p in space.parameters]
    total = np.zeros(len(space))
    for other in others:
        if sorted(p.name for p in other.parameters) != sorted(names):
            known = [p.name for p in other.parameters]
            raise ValueError(f"{other.source} has parameters {known}, {space.source} has {names}: expected the same")
        regrets = np.log(other.seconds(timing) / other.seconds(timing)[other.best(timing)])
        regrets[~other.ok] = SLOWEST * regrets[other.ok].max()
        total += [_regret(other, regrets, space.configuration(i)) for i in range(len(space))]
    ranked = np.argsort(total, kind="stable")
    found = ranked[np.isfinite(total[ranked])]
    if not len(found):
        raise ValueError(f"{space.source} has no configuration that is recorded in all of {[one.source for one in others]}")
    return found


def _regret(other: TuningSpace, regrets: np.ndarray, configuration: dict) -> float:
    found = other.find(configuration)
    return np.inf if found is None else float(regrets[found])
