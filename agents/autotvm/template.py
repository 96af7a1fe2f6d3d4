"""The template of a task: its schedules as configurations of knobs, as AutoTVM describes a space.

A knob of the template is the whole tile chain of one axis (AutoTVM's `define_split`) or one knob that the space moves
(`define_knob`). A configuration is one value index of each; its number is mixed radix, the first knob varying fastest.
Configurations that are no legal schedule are skipped, as AutoTVM skips what does not build.
"""

from __future__ import annotations

import math

import numpy as np

from agents.autotvm.kinds import pools
from agents.core.programs import Programs
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule

ENUMERABLE = 1 << 17
"""Spaces with at most so many configurations are listed once, and then known to be exhausted when they are."""
_ROUNDS, _WHOLE = 200, 4096


class Template:
    """Knobs with more than one value; a configuration int64 [K] is a vector of `agents.core.programs`."""

    def __init__(self, graph: ConstructionGraph) -> None:
        """List what every axis and knob may be."""
        self._programs = Programs(graph)
        self.sizes = self._programs.counts
        """Values of every knob [K]."""
        places = [[start + step * i for i in range(v.shape[1])] for start, step, v in self._programs.moves]
        self._pools = pools(places, [values for _, _, values in self._programs.moves], graph.tables.ints)
        self.kinds = len(self._pools)
        """Kinds of programs (`agents.autotvm.kinds`), of which `random` draws as many each."""
        self._known: np.ndarray | None = None
        self.listed: np.ndarray | None = None
        """All legal configurations int64 [N, K] where the space is small, else None."""
        if math.prod(self.sizes.tolist()) <= ENUMERABLE:
            self._list()

    def rows(self, configurations: np.ndarray) -> np.ndarray:
        """Schedules of configurations, all levels opened; legal or not."""
        return self._programs.rows(configurations)

    def configuration(self, schedule: Schedule) -> np.ndarray | None:
        """The configuration int64 [K] of a schedule; None where the space does not have it."""
        return self._programs.vector(schedule)

    def is_legal(self, configurations: np.ndarray) -> np.ndarray:
        """Which configurations fit the hardware, bool [B]."""
        if self._known is not None:
            return self._known[self.numbers(configurations)]
        return self._programs.legal(configurations)

    def random(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """At most `count` legal configurations, drawn with replacement; fewer where legal ones are very rare.

        Uniform, and in large spaces as many of every kind (`agents.autotvm.kinds`).
        """
        if self.listed is not None:
            return self.listed[rng.integers(len(self.listed), size=count)]
        shares = np.bincount(np.arange(count) % len(self._pools), minlength=len(self._pools))
        found = [self._draw(pool, share, rng) for pool, share in zip(self._pools, shares.tolist(), strict=True)]
        return rng.permutation(np.concatenate(found))

    def _draw(self, pool: list[np.ndarray], count: int, rng: np.random.Generator) -> np.ndarray:
        """At most `count` legal configurations of one kind."""
        sizes = np.array([len(part) for part in pool])
        found = [np.empty((0, len(sizes)), dtype=np.int64)]
        for _ in range(_ROUNDS):
            left = count - sum(map(len, found))
            if left == 0:
                break
            drawn = rng.integers(sizes, size=(_WHOLE, len(sizes)))
            drawn = np.stack([part[at] for part, at in zip(pool, drawn.T, strict=True)], axis=1)
            found.append(drawn[self.is_legal(drawn)][:left])
        return np.concatenate(found)

    def moved(self, configurations: np.ndarray, rng: np.random.Generator, tries: int = 8) -> np.ndarray:
        """Each configuration with one knob, drawn uniformly, at another value, drawn uniformly [B, K].

        What is not legal is drawn again, `tries` times in all; a configuration that finds no move stays.
        """
        result = configurations.copy()
        left = np.arange(len(configurations)) if len(self.sizes) else np.empty(0, dtype=np.int64)
        for _ in range(tries):
            if not len(left):
                break
            knob = rng.integers(len(self.sizes), size=len(left))
            drawn = configurations[left].copy()
            shift = 1 + rng.integers(self.sizes[knob] - 1)
            at = np.arange(len(left))
            drawn[at, knob] = (drawn[at, knob] + shift) % self.sizes[knob]
            legal = self.is_legal(drawn)
            result[left[legal]] = drawn[legal]
            left = left[~legal]
        return result

    def numbers(self, configurations: np.ndarray) -> np.ndarray:
        """Mixed-radix numbers of configurations int64 [B], of a listed space (others may not fit 64 bits)."""
        radix = np.cumprod(np.concatenate([[1], self.sizes]))[:-1]
        return (configurations * radix.astype(np.int64)).sum(axis=1).astype(np.int64)

    def _list(self) -> None:
        """Look once at every configuration, by number."""
        numbers = np.arange(math.prod(self.sizes.tolist()), dtype=np.int64)
        digits = np.empty((len(numbers), len(self.sizes)), dtype=np.int64)
        for k, size in enumerate(self.sizes.tolist()):
            digits[:, k] = numbers % size
            numbers //= size
        legal = self.is_legal(digits)
        self.listed, self._known = digits[legal], legal


def keys_of(configurations: np.ndarray) -> list[bytes]:
    """What tells configurations apart, hashable."""
    return [configuration.tobytes() for configuration in np.ascontiguousarray(configurations, dtype=np.int64)]
