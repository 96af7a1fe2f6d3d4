"""Learning is repeated number for number: two runs with one seed have the same episodes and end with the same weights."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.thorough import thorough_but

pytest.importorskip("sb3_contrib")
torch = pytest.importorskip("torch")

OPERATORS = ["gemm(m=96, n=80, k=64)", "gemv(m=80, k=64)"]
GROUNDS = {
    "primitives": {}, "best so far": {"reward": "best_so_far"}, "written in sizes": {"choices": "sizes"},
    "written in columns": {"choices": "columns"},
}  # fmt: skip


def learned(arguments: dict[str, Any], seed: int) -> tuple[list[Any], list[bytes]]:
    """Returns, lengths and regrets of the last episodes, and the weights, of MaskablePPO after two rollouts."""
    from sb3_contrib import MaskablePPO

    from gensor_gym.env.sb3 import make_sb3, make_writing_sb3

    make = make_writing_sb3 if "choices" in arguments else make_sb3
    env = make(4, operator=OPERATORS, hardware="h200", threads=1, **arguments)
    model = MaskablePPO("MlpPolicy", env, n_steps=48, batch_size=96, n_epochs=1, seed=seed, policy_kwargs={"net_arch": [8]})
    model.learn(2 * 48 * 4)
    episodes = [(one["r"], one["l"], str(one["regret"])) for one in model.ep_info_buffer or ()]
    return episodes, [part.numpy().tobytes() for part in model.policy.state_dict().values()]


@pytest.mark.parametrize("ground", thorough_but(list(GROUNDS), "written in columns"))
def test_two_runs_with_one_seed_are_one(ground: str) -> None:
    one, other, third = (learned(GROUNDS[ground], seed) for seed in (1, 1, 2))
    assert one == other and len(one[0]) > 3
    assert one[0] != third[0] and one[1] != third[1]
