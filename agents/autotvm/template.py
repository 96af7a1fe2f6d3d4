"""The template of a task, in AutoTVM's terms: the programs of its space as configurations of knobs.

A knob of the template is a column: the tile sizes of one axis (AutoTVM's `define_split`) or one knob that the space varies
(`define_knob`). A configuration is a vector of `agents.core.programs`, with an index for each column. Configurations that are not
legal schedules are skipped, as AutoTVM skips configurations that do not build.
"""

from __future__ import annotations

import numpy as np

from agents.autotvm.strata import strata_of
from agents.core.programs import BLOCK, Programs
from gensor_gym.construction import ConstructionGraph

ENUMERABLE = 1 << 17
"""Largest space whose configurations are enumerated, so that a search notices when all are tried."""
_ROUNDS = 200


class Template(Programs):
    """The configurations of one graph: vectors [K] with the index of the chosen value for each of K knobs.

    The methods take and return arrays of configurations, int64 [B, K].
    """

    def __init__(self, graph: ConstructionGraph) -> None:
        super().__init__(graph)
        self.strata = strata_of(self.columns, graph.tables.ints)
        """Allowed values of every stratum (CUDA cores or a kind of tensor-core instruction), as in `agents.autotvm.strata`.

        `random` draws the same number of configurations from each stratum.
        """
        self._known: np.ndarray | None = None
        self.enumerated: np.ndarray | None = None
        """All legal configurations int64 [N, K] of a small space; None for a large space."""
        if self.size <= ENUMERABLE:
            every = self.vectors(np.arange(self.size))
            self._known = self.legal(every)
            self.enumerated = every[self._known]

    def legal(self, vectors: np.ndarray) -> np.ndarray:
        """Return whether each configuration of `vectors` [B, K] is a legal program, bool [B]."""
        return super().legal(vectors) if self._known is None else self._known[self.numbers(vectors)]

    def random(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draw up to `count` legal configurations with replacement; fewer if legal configurations are very rare.

        Draws from a small space are uniform. In a large space every stratum (CUDA cores or one kind of tensor-core instruction)
        gets the same number of draws.
        """
        if self.enumerated is not None:
            return self.enumerated[rng.integers(len(self.enumerated), size=count)]
        shares = np.bincount(np.arange(count) % len(self.strata), minlength=len(self.strata))
        found = [self._draw(stratum, share, rng) for stratum, share in zip(self.strata, shares.tolist(), strict=True)]
        return rng.permutation(np.concatenate(found))

    def _draw(self, stratum: list[np.ndarray], count: int, rng: np.random.Generator) -> np.ndarray:
        sizes = np.array([len(part) for part in stratum])
        found = [np.empty((0, len(sizes)), dtype=np.int64)]
        for _ in range(_ROUNDS):
            left = count - sum(map(len, found))
            if left == 0:
                break
            drawn = rng.integers(sizes, size=(BLOCK, len(sizes)))
            drawn = np.stack([part[at] for part, at in zip(stratum, drawn.T, strict=True)], axis=1)
            found.append(drawn[self.legal(drawn)][:left])
        return np.concatenate(found)

    def mutated(self, configurations: np.ndarray, rng: np.random.Generator, tries: int = 8) -> np.ndarray:
        """Return copies of the configurations [B, K] in which one random knob has another random value.

        Illegal results are redrawn up to `tries` times. A configuration without a legal result stays unchanged.
        """
        result = configurations.copy()
        left = np.arange(len(configurations)) if len(self.counts) else np.empty(0, dtype=np.int64)
        for _ in range(tries):
            if not len(left):
                break
            knob = rng.integers(len(self.counts), size=len(left))
            drawn = configurations[left].copy()
            shift = 1 + rng.integers(self.counts[knob] - 1)
            at = np.arange(len(left))
            drawn[at, knob] = (drawn[at, knob] + shift) % self.counts[knob]
            legal = self.legal(drawn)
            result[left[legal]] = drawn[legal]
            left = left[~legal]
        return result


def keys_of(configurations: np.ndarray) -> list[bytes]:
    """Return one hashable key per configuration: its bytes."""
    return [configuration.tobytes() for configuration in np.ascontiguousarray(configurations, dtype=np.int64)]
