"""The adapter to stable-baselines3: its conventions, and that its algorithms train through it."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

sb3 = pytest.importorskip("stable_baselines3")

from stable_baselines3.common.monitor import Monitor  # noqa: E402
from stable_baselines3.common.vec_env import VecCheckNan, VecNormalize  # noqa: E402

from gensor_gym.env.sb3 import ConstructVecEnv, make_sb3  # noqa: E402
from gensor_gym.env.vector import ConstructVectorEnv  # noqa: E402
from gensor_gym.graph.actions import NUM_ACTIONS  # noqa: E402
from tests.support.graph_walks import OPERATORS, choose  # noqa: E402

GEMM = "gemm(m=64, n=48, k=40)"
COMMON = {"operator": list(OPERATORS[:4]), "hardware": "h200"}


def test_it_is_the_vector_environment_in_another_dress() -> None:
    """Observations, rewards and ends agree; infos of episodes that ended follow the conventions; others are empty."""
    env, envs = make_sb3(6, **COMMON), ConstructVectorEnv(6, autoreset_mode=AutoresetMode.SAME_STEP, **COMMON)
    assert env.seed(3) == [3, 4, 5, 6, 7, 8]
    assert np.array_equal(env.reset(), envs.reset(seed=3)[0])
    rng = np.random.default_rng(0)
    returns, lengths, ends = np.zeros(6), np.zeros(6, dtype=int), 0
    for _ in range(60):
        masks = np.stack(env.env_method("action_masks"))
        assert masks.dtype == np.bool_ and np.array_equal(masks, envs.action_masks())
        actions = choose(masks, rng)
        observations, rewards, ended, infos = env.step(actions)
        expected, exact, ended_too, _, info = envs.step(actions)
        assert np.array_equal(observations, expected) and np.array_equal(ended, ended_too)
        assert rewards.dtype == np.float32 and np.allclose(rewards, exact, atol=1e-6)
        returns, lengths = returns + exact, lengths + 1
        for i in range(6):
            if not ended[i]:
                assert infos[i] == {}
                continue
            assert np.array_equal(infos[i]["terminal_observation"], info["final_obs"][i])
            assert infos[i]["episode"]["r"] == pytest.approx(returns[i]) and infos[i]["episode"]["l"] == lengths[i]
            assert infos[i]["episode"]["t"] >= 0.0 and infos[i]["TimeLimit.truncated"] is False
            assert infos[i]["runtime_s"] == info["final_info"]["runtime_s"][i] and infos[i]["status"] == "OK"
            assert infos[i]["steps"] == info["final_info"]["steps"][i]
            assert np.array_equal(env.reset_infos[i]["action_mask"], info["action_mask"][i])
            returns[i], lengths[i], ends = 0.0, 0, ends + 1
        assert len({id(one) for one in infos}) == 6
    assert ends > 10
    env.close()


def test_attributes_and_methods_of_single_environments() -> None:
    env = make_sb3(3, discount=0.9, **COMMON)
    env.reset()
    assert env.num_envs == 3 and env.discount == 0.9
    assert env.has_attr("action_masks") and not env.has_attr("nothing_of_that_name")
    assert env.get_attr("discount") == [0.9] * 3
    assert [s == g.initial() for s, g in zip(env.get_attr("schedule"), env.get_attr("graph"), strict=True)] == [
        True
    ] * 3
    assert env.get_attr("remaining", indices=[2]) == [env.get_attr("graph")[2].horizon]
    assert len(env.env_method("action_masks", indices=1)) == 1
    assert env.env_is_wrapped(Monitor) == [True] * 3 and env.env_is_wrapped(VecNormalize) == [False] * 3
    env.set_attr("note", 5)
    assert env.get_attr("note") == [5] * 3
    with pytest.raises(ValueError, match="'note' is shared by all 3 environments"):
        env.set_attr("note", 6, indices=0)
    with pytest.raises(AttributeError, match="'fly'.*'action_masks' and 'render'"):
        env.env_method("fly")


def test_options_and_seeds_are_used_once() -> None:
    env = make_sb3(2, operator=GEMM, hardware="h200")
    env.set_options({"operator": "gemv(m=8, k=8)"})
    env.reset()
    assert [g.operator.name for g in env.get_attr("graph")] == ["gemv", "gemv"]
    env.reset()
    assert [g.operator.name for g in env.get_attr("graph")] == ["gemm", "gemm"]
    env.set_options([{"operator": "gemv(m=8, k=8)"}, {}])
    observations = env.reset()
    assert [g.operator.name for g in env.get_attr("graph")] == ["gemv", "gemm"]
    assert env.observation_space.contains(observations[0])


def test_only_same_step_is_accepted() -> None:
    with pytest.raises(ValueError, match="stable-baselines3 needs"):
        ConstructVecEnv(ConstructVectorEnv(2, GEMM, "h200"))


def test_wrappers_and_rendering() -> None:
    pytest.importorskip("matplotlib")
    env = VecNormalize(
        VecCheckNan(make_sb3(2, operator=GEMM, hardware="h200", render_mode="rgb_array"), raise_exception=True)
    )
    env.reset()
    env.action_space.seed(0)
    for _ in range(30):
        env.step(np.array([env.action_space.sample() for _ in range(2)]))
    frame = env.render()
    assert frame.dtype == np.uint8 and frame.shape[2] == 3
    text = make_sb3(2, operator=GEMM, hardware="h200", render_mode="ansi")
    text.reset()
    assert all("gemm" in frame for frame in text.env_method("render"))


def test_maskable_ppo_learns_through_it() -> None:
    """Rewards of episodes are logged without Monitor, masks are respected, and the return goes up."""
    contrib = pytest.importorskip("sb3_contrib")
    from sb3_contrib.common.maskable.evaluation import evaluate_policy

    env = make_sb3(16, operator="gemm(m=96, n=80, k=64)", hardware="h200")
    arguments = {"n_steps": 64, "batch_size": 256, "n_epochs": 4, "gamma": env.discount, "learning_rate": 2e-3, "seed": 0}
    model = contrib.MaskablePPO("MlpPolicy", env, policy_kwargs={"net_arch": [32]}, device="cpu", **arguments)
    model.learn(1024)
    first = np.mean([episode["r"] for episode in model.ep_info_buffer])
    model.learn(8192, reset_num_timesteps=False)
    assert np.mean([episode["r"] for episode in model.ep_info_buffer]) > first + 0.3
    mean, _ = evaluate_policy(model, env, n_eval_episodes=4, warn=False)
    assert np.isfinite(mean)


@pytest.mark.parametrize("observation", ["flat", "dict"])
def test_dqn_and_ppo_take_its_observations(observation: str) -> None:
    policy = "MlpPolicy" if observation == "flat" else "MultiInputPolicy"
    env = make_sb3(4, observation=observation, **COMMON)
    small = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu", "seed": 0}
    sb3.PPO(policy, env, n_steps=16, batch_size=32, n_epochs=1, **small).learn(64)
    model = sb3.DQN(policy, env, buffer_size=200, learning_starts=20, **small).learn(80)
    action, _ = model.predict(env.reset())
    assert action.shape == (4,) and (0 <= action).all() and (action < NUM_ACTIONS).all()
