"""Random streams of parallel environments, created at their first draw.

Creating a stream takes longer than several steps of an environment. Most streams are never used: an environment with one task
draws nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.utils.seeding import np_random


class Streams:
    """One random stream per environment, seeded as Gymnasium does."""

    def __init__(self, count: int) -> None:
        """Make `count` unseeded streams, which start from the machine's entropy."""
        self._streams: list[np.random.Generator | int | None] = [None] * count
        """Per environment the stream, or the seed of a stream that is not used yet."""

    def seed(self, index: int, seed: int) -> None:
        """Restart the stream of an environment from a seed. Gymnasium's error if the seed is invalid."""
        if type(seed) is not int or seed < 0:
            np_random(seed)
        self._streams[index] = seed

    def of(self, index: int) -> np.random.Generator:
        """Return the random stream of one environment, creating it at the first call."""
        found = self._streams[index]
        if not isinstance(found, np.random.Generator):
            found = self._streams[index] = np_random(found)[0]
        return found

    def state(self) -> list[dict[str, Any] | None]:
        """Return the states of all streams, for `restore`. None for a stream that was neither seeded nor used."""
        begun = range(len(self._streams))
        return [None if self._streams[i] is None else dict(self.of(i).bit_generator.state) for i in begun]

    def restore(self, states: Sequence[dict[str, Any] | None]) -> None:
        """Continue from `states`, one per stream, as `state` returned them."""
        self._streams = [None if state is None else _stream(state) for state in states]


def _stream(state: dict[str, Any]) -> np.random.Generator:
    """Make a random stream of type PCG64, like Gymnasium's, that continues from `state`."""
    rng = np.random.Generator(np.random.PCG64())
    rng.bit_generator.state = state
    return rng
