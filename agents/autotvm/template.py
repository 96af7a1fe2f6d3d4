"""The template of a task: its programs as configurations of knobs, as AutoTVM describes a space.

A knob of the template is the whole tile chain of one axis (AutoTVM's `define_split`) or one knob that the space moves
(`define_knob`): a column. A configuration is a vector of `agents.core.programs`, an index for each of them. Configurations that
are no legal schedule are skipped, as AutoTVM skips those that do not build.
"""

from __future__ import annotations

import numpy as np

from agents.autotvm.strata import strata_of
from agents.core.programs import BLOCK, Programs
from gensor_gym.construction import ConstructionGraph

ENUMERABLE = 1 << 17
"""Spaces up to this number of configurations are listed once, so that their exhaustion is known."""
_ROUNDS = 200


class Template(Programs):
    """The space of one graph; arrays of configurations int64 [B, K] are drawn and moved together."""

    def __init__(self, graph: ConstructionGraph) -> None:
        """Look once at every configuration, by number, where the space is small."""
        super().__init__(graph)
        self.strata = strata_of(self.columns, graph.tables.ints)
        """See `agents.autotvm.strata`; `random` draws as many of each."""
        self._known: np.ndarray | None = None
        self.enumerated: np.ndarray | None = None
        """All legal configurations int64 [N, K] of a small space, else None."""
        if self.size <= ENUMERABLE:
            every = self.vectors(np.arange(self.size))
            self._known = self.legal(every)
            self.enumerated = every[self._known]

    def legal(self, vectors: np.ndarray) -> np.ndarray:
        """Which configurations are legal programs, bool [B]."""
        return super().legal(vectors) if self._known is None else self._known[self.numbers(vectors)]

    def random(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """At most `count` legal configurations, drawn with replacement; fewer if legal ones are very rare.

        Uniform; in large spaces, the same number of every stratum.
        """
        if self.enumerated is not None:
            return self.enumerated[rng.integers(len(self.enumerated), size=count)]
        shares = np.bincount(np.arange(count) % len(self.strata), minlength=len(self.strata))
        found = [self._draw(stratum, share, rng) for stratum, share in zip(self.strata, shares.tolist(), strict=True)]
        return rng.permutation(np.concatenate(found))

    def _draw(self, stratum: list[np.ndarray], count: int, rng: np.random.Generator) -> np.ndarray:
        """At most `count` legal configurations of one stratum."""
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
        """Each configuration with one knob, drawn uniformly, at another value, drawn uniformly [B, K].

        Illegal results are redrawn, up to `tries` times; a configuration without a legal move is unchanged.
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
    """Hashable keys of configurations."""
    return [configuration.tobytes() for configuration in np.ascontiguousarray(configurations, dtype=np.int64)]
