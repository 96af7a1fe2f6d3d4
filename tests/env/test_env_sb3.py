"""The adapter to stable-baselines3; streams and curves that a seed decides."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecCheckNan, VecNormalize

from gensor_gym.env.episodes.streams import Streams
from gensor_gym.env.sb3 import ConstructVecEnv, make_sb3
from gensor_gym.env.seeds import seed_of_run
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.graph.actions import NUM_ACTIONS
from tests.support.graph_walks import OPERATORS, choose
from tests.support.thorough import thorough_but

sb3 = pytest.importorskip("stable_baselines3")



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


pytest.importorskip("sb3_contrib")
torch = pytest.importorskip("torch")

OPERATORS_CURVE = ["gemm(m=96, n=80, k=64)", "gemv(m=80, k=64)"]
GROUNDS = {
    "primitives": {}, "best so far": {"reward": "best_so_far"}, "written in sizes": {"choices": "sizes"},
    "written in columns": {"choices": "columns"},
}  # fmt: skip


def learned(arguments: dict[str, Any], seed: int) -> tuple[list[Any], list[bytes]]:
    """Returns, lengths and regrets of the last episodes, and the weights, of MaskablePPO after two rollouts."""
    from sb3_contrib import MaskablePPO

    from gensor_gym.env.sb3 import make_sb3, make_writing_sb3

    make = make_writing_sb3 if "choices" in arguments else make_sb3
    env = make(4, operator=OPERATORS_CURVE, hardware="h200", threads=1, **arguments)
    model = MaskablePPO("MlpPolicy", env, n_steps=48, batch_size=96, n_epochs=1, seed=seed, policy_kwargs={"net_arch": [8]})
    model.learn(2 * 48 * 4)
    episodes = [(one["r"], one["l"], str(one["regret"])) for one in model.ep_info_buffer or ()]
    return episodes, [part.numpy().tobytes() for part in model.policy.state_dict().values()]


@pytest.mark.parametrize("ground", thorough_but(list(GROUNDS), "written in columns"))
def test_two_runs_with_one_seed_are_one(ground: str) -> None:
    one, other, third = (learned(GROUNDS[ground], seed) for seed in (1, 1, 2))
    assert one == other and len(one[0]) > 3
    assert one[0] != third[0] and one[1] != third[1]


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
