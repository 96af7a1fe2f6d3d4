"""`Gir-v0` through the adapter to stable-baselines3, and by both checkers on operators that no test chose."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

sb3 = pytest.importorskip("stable_baselines3")

from stable_baselines3.common.env_checker import check_env as check_for_sb3  # noqa: E402

from agents.policies.fused_parts import part  # noqa: E402
from gensor_gym.env.fused.env import GirEnv, GirVectorEnv  # noqa: E402
from gensor_gym.env.fused.observation import GROUPS  # noqa: E402
from gensor_gym.env.sb3 import make_fused_sb3  # noqa: E402
from gensor_gym.gir.actions import STOP  # noqa: E402
from tests.support.thorough import thorough_but  # noqa: E402

TEN = [*part("fused/test")[:8], *part("fused/unseen")[:2]]
COMMON = {"operator": ["softmax(m=64, n=96)", "rmsnorm(m=8, n=32)"], "hardware": "cascade_lake"}


@pytest.mark.parametrize("operator", thorough_but(TEN, *TEN[::3]), ids=lambda operator: operator.name)
def test_checkers_accept_operators_drawn_at_random(operator: object) -> None:
    """Gymnasium's and stable-baselines3's; a random episode keeps to what masks, spaces and the model say."""
    check_env(GirEnv(operator, "cascade_lake"), skip_render_check=True)  # type: ignore[arg-type]
    check_for_sb3(GirEnv(operator, "cascade_lake"))  # type: ignore[arg-type]
    env = GirEnv(operator, "cascade_lake")  # type: ignore[arg-type]
    _, info = env.reset(seed=1)
    rng, ended = np.random.default_rng(1), False
    while not ended:
        assert (info["action_mask"] == env.graph.action_mask(env.schedule)).all() or env.remaining == 1
        legal = np.flatnonzero(info["action_mask"])
        observation, _, ended, _, info = env.step(int(rng.choice(legal[1:] if len(legal) > 1 else legal)))
        assert env.observation_space.contains(observation) and env.graph.is_legal(env.schedule)
    assert info["runtime_s"] == env.graph.latency(env.schedule) and info["regret"] >= 0


def test_the_adapter_is_the_vector_environment_in_another_dress() -> None:
    """Observations, rewards, ends and masks agree; who ended has an episode's facts."""
    env, envs = make_fused_sb3(4, **COMMON), GirVectorEnv(4, autoreset_mode=AutoresetMode.SAME_STEP, **COMMON)
    env.seed(3)
    assert np.array_equal(env.reset(), envs.reset(seed=3)[0])
    rng, ends = np.random.default_rng(0), 0
    for _ in range(60):
        masks = np.stack(env.env_method("action_masks"))
        assert np.array_equal(masks, envs.action_masks())
        actions = np.where(masks, rng.random(masks.shape), -1.0).argmax(axis=1)
        observations, rewards, ended, infos = env.step(actions)
        expected, exact, over, _, info = envs.step(actions)
        assert np.array_equal(observations, expected) and np.array_equal(ended, over) and np.allclose(rewards, exact, atol=1e-6)
        for i in np.flatnonzero(ended):
            assert infos[i]["steps"] == info["final_info"]["steps"][i] and infos[i]["status"] == "OK"
            ends += 1
    assert ends > 5
    env.close()


@pytest.mark.thorough
def test_maskable_ppo_learns_through_it() -> None:
    """sb3-contrib's own, unchanged: it takes legal actions alone."""
    contrib = pytest.importorskip("sb3_contrib")
    env = make_fused_sb3(4, **COMMON)
    model = contrib.MaskablePPO("MlpPolicy", env, n_steps=16, batch_size=32, n_epochs=1, seed=0, device="cpu")
    model.learn(64)
    masks = np.stack(env.env_method("action_masks"))
    actions, _ = model.predict(env.reset(), action_masks=masks)
    assert masks[np.arange(4), actions].all()
    env.close()


@pytest.mark.parametrize("observation", ["flat", "dict"])
def test_groups_are_parts_of_the_flat_observation(observation: str) -> None:
    """In single and vector form, in the order of `GROUPS` whatever order is asked."""
    chosen = ["speed", "header", "cells"]
    whole = GirEnv(**COMMON).reset(seed=0)[0]
    ends = np.cumsum(list(GROUPS.values()))
    parts = {name: whole[end - size : end] for (name, size), end in zip(GROUPS.items(), ends, strict=True)}
    some, _ = GirEnv(**COMMON, observation=observation, observation_groups=chosen).reset(seed=0)
    several, _ = GirVectorEnv(2, **COMMON, observation=observation, observation_groups=chosen).reset(seed=0)
    order = [name for name in GROUPS if name in chosen]
    if observation == "flat":
        assert np.array_equal(some, np.concatenate([parts[name] for name in order])) and np.array_equal(several[0], some)
    else:
        assert list(some) == order and all(np.array_equal(some[name], parts[name]) for name in order)
        assert all(np.array_equal(several[name][0], parts[name]) for name in order)


def test_only_stop_is_left_in_the_last_step_of_the_vector_form() -> None:
    """Of those environments alone that have come so far."""
    envs = GirVectorEnv(2, **COMMON)
    _, info = envs.reset(seed=0)
    for _ in range(max(graph.horizon for graph in envs.graphs) - 1):
        last = envs.remaining == 1
        assert (info["action_mask"][last].sum(axis=1) == 1).all() and info["action_mask"][last, STOP].all()
        _, _, ended, _, info = envs.step(np.full(2, 10_000))
        if ended.any():
            break
    else:
        assert (envs.remaining == 1).any()
