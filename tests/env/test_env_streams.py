"""Random streams of environments side by side: Gymnasium's, whenever they are made."""

from __future__ import annotations

import gymnasium
import pytest
from gymnasium.utils.seeding import np_random

import gensor_gym  # noqa: F401
from gensor_gym.env.episodes.streams import Streams
from gensor_gym.env.seeds import seed_of_run

TWO = ["gemm(m=64, n=64, k=64)", "gemv(m=64, k=64)"]


def test_a_stream_is_gymnasiums_whenever_it_is_made() -> None:
    streams, expected = Streams(3), np_random(7)[0].integers(1 << 40, size=5)
    streams.seed(1, 7)
    assert (streams.of(1).integers(1 << 40, size=5) == expected).all()
    streams.seed(1, 7)
    assert streams.state()[1] == np_random(7)[0].bit_generator.state, "what nothing was drawn from has a state too"
    assert streams.state()[0] is None and streams.of(0) is streams.of(0)


def test_a_state_goes_on() -> None:
    streams, others = Streams(2), Streams(2)
    streams.seed(0, 3)
    streams.of(0).random(4)
    state = streams.state()
    expected = streams.of(0).random(6)
    others.restore(state)
    assert (others.of(0).random(6) == expected).all()
    assert others.state()[1] is None


@pytest.mark.parametrize("seed", [-1, 1.5, "a"])
def test_what_is_no_seed_is_named_at_once(seed: object) -> None:
    with pytest.raises(gymnasium.error.Error, match="[Ss]eed"):
        Streams(1).seed(0, seed)  # type: ignore[arg-type]
    envs = gymnasium.make_vec("gensor_gym/Construct-v0", num_envs=2, operator=TWO, hardware="h200")
    with pytest.raises((gymnasium.error.Error, TypeError)):
        envs.reset(seed=[0, seed])
    envs.close()


def test_runs_with_neighbouring_seeds_share_no_stream() -> None:
    """Environment i of a vector is seeded with seed + i; a run's own seed is not handed on as it is."""
    streams = [{seed_of_run(seed) + i for i in range(1024)} for seed in range(32)]
    assert sum(map(len, streams)) == len(set().union(*streams)) and max(map(max, streams)) < 1 << 32
    assert seed_of_run(3) == seed_of_run(3)
