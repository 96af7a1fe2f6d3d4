"""`reward="best_so_far"` in the vector form: threads, copies and saved states; what is refused; recorded times."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.graph.actions import STOP
from tests.support.graph_walks import OPERATORS

GEMM = "gemm(m=64, n=48, k=40)"


def drawn(masks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A legal action of each, `stop` only where nothing else is."""
    masks = masks.copy()
    masks[:, STOP] &= ~masks[:, 1:].any(axis=1)
    return np.where(masks, rng.random(masks.shape), -1.0).argmax(axis=1)


@pytest.mark.parametrize("reward", ["final", "best_so_far"])
def test_threads_copies_and_saved_states_go_on_alike(reward: str) -> None:
    """One thread or three; a copy, a pickle, and another environment that is given the state."""
    arguments = {"operator": list(OPERATORS[:3]), "hardware": "h200", "reward": reward}
    envs = [ConstructVectorEnv(400, threads=threads, **arguments) for threads in (1, 3, 1)]  # type: ignore[arg-type]
    rng, (first, second) = np.random.default_rng(0), (one.reset(seed=1)[0] for one in envs[:2])
    assert np.array_equal(first, second)
    for _ in range(12):
        actions = np.where(rng.random(400) < 0.3, STOP, drawn(envs[0].action_masks(), rng))
        left, right = (one.step(actions) for one in envs[:2])
        assert all(np.array_equal(a, b) for a, b in zip(left[:4], right[:4], strict=True))
        assert np.array_equal(left[4]["action_mask"], right[4]["action_mask"])
    assert envs[1]._pool is not None and envs[0]._pool is None
    envs[2].reset()
    envs[2].restore(envs[0].state())
    envs += [copy.deepcopy(envs[0]), pickle.loads(pickle.dumps(envs[0]))]
    for _ in range(20):
        actions = np.where(rng.random(400) < 0.3, STOP, drawn(envs[0].action_masks(), rng))
        first, *others = (one.step(actions) for one in envs)
        assert all(np.array_equal(first[k], other[k]) for other in others for k in range(3))
        assert all(np.array_equal(first[4].get("best", 0), other[4].get("best", 0)) for other in others)
    for one in envs:
        one.close()


def test_actions_say_what_they_do() -> None:
    env = ConstructEnv(GEMM, "h200")
    assert env.meaning(0) == "stop" and env.meaning(5).startswith("tile")
    with pytest.raises(ValueError, match="action 73 is none"):
        env.meaning(73)


def test_recorded_times_pay_and_know_the_best() -> None:
    """With the tables that ship: what is not recorded pays nothing, and regret is known where a table is complete."""
    arguments = {"operator": "gemm(m=64, n=64, k=512)", "hardware": "zen5_1c", "space": "compact", "backend": "recorded"}
    env, rng, regrets = ConstructEnv(reward="best_so_far", **arguments), np.random.default_rng(0), []
    for seed in range(5):
        env.reset(seed=seed)
        ended = False
        while not ended:
            mask = env.action_masks()
            action = STOP if rng.random() < 0.3 else int(drawn(mask[None], rng)[0])
            _, _, ended, _, info = env.step(action)
        assert info["status"] == "OK" and info["paid"] > 1
        regrets.append(info["regret"])
    assert min(regrets) >= 0.0 and max(regrets) > 0.0
