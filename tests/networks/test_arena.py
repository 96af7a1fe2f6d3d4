"""Memory between kernels: nothing overlaps that is needed at once, in any mode, and no arena is larger than it must be."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym.codegen.runtime.memory import ALIGNMENT
from gensor_gym.networks.arena import MODES, Life, arena, bound


def random_lives(seed: int, count: int = 40) -> list[Life]:
    rng = np.random.default_rng(seed)
    lives = []
    for step in range(count):
        last = min(count - 1, step + int(rng.geometric(0.4)))
        lives.append(Life(f"v{step}", int(rng.integers(1, 5000)) * 4, step, last))
    return lives


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(8))
def test_no_two_values_that_are_needed_at_once_overlap(mode: str, seed: int) -> None:
    lives = random_lives(seed)
    made = arena(lives, mode)
    for place, one in enumerate(lives):
        start = made.offsets[one.name]
        assert start % ALIGNMENT == 0 and start + one.bytes <= made.bytes
        for other in lives[:place]:
            apart = start + one.bytes <= made.offsets[other.name] or made.offsets[other.name] + other.bytes <= start
            assert apart or not (one.first <= other.last and other.first <= one.last)


@pytest.mark.parametrize("seed", range(8))
def test_reuse_comes_near_to_the_bound(seed: int) -> None:
    lives = random_lives(seed)
    least = bound(lives)
    assert least <= arena(lives, "whole").bytes <= 1.2 * least
    assert least <= arena(lives, "hot").bytes <= 1.5 * least < arena(lives, "none").bytes


def test_a_chain_takes_two_places_and_the_hot_one_is_what_was_read_last() -> None:
    chain = [Life(f"v{step}", 64, step, step + 1) for step in range(6)]
    for mode in ("whole", "hot"):
        assert arena(chain, mode).bytes == bound(chain) == 128
    spread = [Life("a", 64, 0, 1), Life("b", 64, 0, 2), Life("long", 64, 0, 9), Life("c", 64, 4, 5)]
    assert arena(spread, "hot").offsets["c"] == arena(spread, "hot").offsets["b"]


def test_nothing_and_unknown_modes() -> None:
    # The largest value first would leave a gap of 64 bytes below a value that lives longer.
    longer = [Life("a", 192, 4, 4), Life("b", 128, 2, 5), Life("c", 128, 4, 4), Life("d", 256, 2, 3)]
    assert arena(longer, "whole").bytes == bound(longer) == 448
    assert arena([], "hot").bytes == bound([]) == 0
    with pytest.raises(ValueError, match="'cold': expected one of none, whole, hot"):
        arena([], "cold")
