"""gensor_gym/Recorded-v0: conventions of both libraries, the decision process by its definition, and what it refuses."""

from __future__ import annotations

import json
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

import gensor_gym  # noqa: F401
from gensor_gym import load_space
from tests.support.tuning_files import CACHE, HUB_FILES, T4, random_cache

ID = "gensor_gym/Recorded-v0"
ARGUMENTS: list[dict[str, Any]] = [
    {"path": str(CACHE)},
    {"path": CACHE, "timing": "median", "seconds": 0.5, "discount": 0.9},
    {"path": T4, "format": "t4", "timing": "resample", "shaping": False},
    *({"path": path} for path in HUB_FILES[:1]),
]


def make(**arguments: Any) -> Any:
    return gymnasium.make(ID, **({"path": CACHE} | arguments)).unwrapped


def rollout(env: Any, seed: int, steps: int = 60) -> list[Any]:
    """Observations, rewards, flags and infos of seeded random legal actions over several episodes."""
    obs, info = env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    rows: list[Any] = [(obs.tolist(), str(info))]
    for _ in range(steps):
        legal = np.flatnonzero(env.action_masks())
        obs, reward, ended, _, info = env.step(int(rng.choice(legal)))
        rows.append((obs.tolist(), reward, ended, str(info)))
        if ended:
            obs, info = env.reset()
            rows.append((obs.tolist(), str(info)))
    return rows


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_both_checkers_are_silent(arguments: dict[str, Any]) -> None:
    from stable_baselines3.common.env_checker import check_env as check_for_sb3

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(ID, **arguments)
        check_env(env.unwrapped)
        check_for_sb3(env.unwrapped)


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_seeds_pickles_and_specs(arguments: dict[str, Any]) -> None:
    env = gymnasium.make(ID, **arguments)
    expected = rollout(env.unwrapped, 7)
    assert rollout(gymnasium.make(ID, **arguments).unwrapped, 7) == expected
    assert rollout(pickle.loads(pickle.dumps(env.unwrapped)), 7) == expected
    assert rollout(gymnasium.make(EnvSpec.from_json(env.spec.to_json())).unwrapped, 7) == expected  # type: ignore[union-attr]
    assert rollout(env.unwrapped, 8) != expected


@pytest.mark.parametrize("timing", ["reported", "median", "resample"])
@pytest.mark.parametrize("shaping", [True, False])
def test_an_episode_returns_r_minus_its_steps(timing: str, shaping: bool) -> None:
    env = make(timing=timing, shaping=shaping)
    rng = np.random.default_rng(0)
    times = env.space.seconds("median" if timing == "median" else "reported")
    cap = times[np.isfinite(times)].max()
    for seed in range(30):
        env.reset(seed=seed)
        total, ended, met = 0.0, False, {env.index}
        while not ended:
            _, reward, ended, truncated, info = env.step(int(rng.integers(0 if env.steps > 5 else 1, env.action_space.n)))
            total += reward
            met.add(env.index)
            assert not truncated
        wanted = max(0.0, math.log(cap / info["runtime_s"])) if math.isfinite(info["runtime_s"]) else 0.0
        assert math.isclose(total, wanted - 0.001 * info["steps"], abs_tol=1e-9)
        if timing != "resample":
            assert info["runtime_s"] == min(times[i] for i in met)
        tied = env.space.optimal("median" if timing == "median" else "reported")
        optimal = env.incumbent is not None and tied[env.incumbent]
        assert info["best_s"] == times.min() and info["in_optimal_set"] == optimal
        assert info["regret"] == (0.0 if optimal else pytest.approx(math.log(info["runtime_s"] / times.min()), abs=1e-12))


def test_the_best_configuration_is_known_and_pays_most() -> None:
    env = make()
    best = env.space.configuration(env.space.best())
    _, info = env.reset(options={"configuration": best})
    assert info["regret"] == 0.0 and info["in_optimal_set"] and info["status"] == "OK"
    _, reward, ended, _, info = env.step(0)
    assert ended and info["steps"] == 0 and math.isclose(reward, math.log(env.cap / info["best_s"]))


def test_masks_and_illegal_actions() -> None:
    env = make()
    for seed in range(20):
        _, info = env.reset(seed=seed)
        mask = env.action_masks()
        assert info["action_mask"].dtype == np.int8 and np.array_equal(info["action_mask"], mask) and mask[0]
        for action in range(env.action_space.n):
            before = env.index
            if not mask[action]:
                _, reward, ended, _, info = env.step(action)
                assert env.index == before and reward == pytest.approx(-0.001) and not ended
    obs, _ = env.reset(seed=0)
    assert np.array_equal(obs[-env.action_space.n :], env.action_masks())


def test_the_horizon_ends_with_stop() -> None:
    env = make(horizon=4)
    env.reset(seed=0)
    for left in (3, 2, 1):
        _, _, ended, _, _ = env.step(1)
        assert not ended and env.remaining == left
    assert np.flatnonzero(env.action_masks()).tolist() == [0]
    _, _, ended, truncated, info = env.step(2)
    assert ended and not truncated and info["steps"] == 3
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)


def test_seconds_are_charged_once_and_end_the_episode() -> None:
    env = make()
    _, info = env.reset(seed=1)
    start, first = env.index, info["spent_s"]
    assert first == env.space.charges[start]
    move = int(np.flatnonzero(env.action_masks())[-1])
    _, _, _, _, info = env.step(move)
    assert info["spent_s"] == pytest.approx(first + env.space.charges[env.index])
    back = move - 1 if (move - 2) % 2 else move + 1
    _, _, _, _, again = env.step(back)
    assert env.index == start and again["spent_s"] == info["spent_s"]
    short = make(seconds=first * 1.5)
    short.reset(seed=1)
    assert short.action_masks().sum() > 1
    short.step(move)
    assert np.flatnonzero(short.action_masks()).tolist() == [0]
    assert short.step(move)[2]


def test_resampling_draws_recorded_samples_and_pays_recorded_times() -> None:
    env = make(timing="resample")
    drawn = set()
    for seed in range(20):
        _, info = env.reset(seed=seed, options={"configuration": env.space.configuration(0)})
        assert info["seconds"] in env.space.samples[0] and info["runtime_s"] == env.space.reported[0]
        drawn.add(info["seconds"])
    assert len(drawn) > 3


def test_disconnected_spaces_with_gaps(tmp_path: Path) -> None:
    (tmp_path / "space.json").write_text(json.dumps(random_cache(2, 0.08)))
    env = make(path=tmp_path / "space.json")
    assert env.moves.count > 1
    env.reset(seed=0)
    met = {env.moves.parts[env.index]}
    for _ in range(env.moves.count):
        env.step(1)
        met.add(env.moves.parts[env.index])
    assert len(met) == env.moves.count
    check_env(env)


def test_a_single_configuration(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps({"tune_params_keys": ["x"], "cache": {"1": {"x": 1, "time": 1.0}}}))
    env = make(path=tmp_path / "one.json")
    _, info = env.reset(seed=0)
    assert env.action_masks().tolist() == [True, False] and info["in_optimal_set"]
    assert env.step(0)[1] == 0.0


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"timing": "mean"}, "'mean'.*'reported', 'median', 'resample'"),
        ({"seconds": 0}, "seconds is 0"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"horizon": 0}, "horizon is 0"),
        ({"horizon": 2.5}, "horizon is 2.5"),
        ({"discount": 0.0}, "discount 0.0"),
        ({"step_cost": -1.0}, "step_cost -1.0"),
        ({"render_mode": "human"}, "'human'"),
        ({"path": "nowhere.json"}, "nowhere.json"),
        ({"format": "csv"}, "'csv'"),
        ({"unit": "parsec"}, "'parsec'"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**arguments)


def test_spaces_without_optimum_or_samples(tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    path.write_text(json.dumps({"tune_params_keys": ["x"], "cache": {"1": {"x": 1, "time": "InvalidConfig"}}}))
    with pytest.raises(ValueError, match="none of 1 configurations ran well"):
        make(path=path)
    path.write_text(json.dumps({"tune_params_keys": ["x"], "cache": {"1": {"x": 1, "time": 2.0}}}))
    with pytest.raises(ValueError, match="has none for 1 of 1"):
        make(path=path, timing="resample")
    with pytest.raises(ValueError, match="accepted is 'configuration'"):
        make().reset(options={"operator": 1})
    with pytest.raises(gymnasium.error.ResetNeeded):
        make().step(0)


def test_vectors_spaces_and_maskable_ppo() -> None:
    from sb3_contrib import MaskablePPO

    envs = gymnasium.make_vec(ID, num_envs=3, path=load_space(CACHE))
    _, infos = envs.reset(seed=0)
    assert infos["action_mask"].shape == (3, envs.single_action_space.n)
    MaskablePPO("MlpPolicy", make(), n_steps=64, batch_size=32, n_epochs=1, seed=0, device="cpu").learn(64)


def test_render() -> None:
    env = make(render_mode="ansi")
    env.reset(seed=0)
    assert "TILE_I=" in env.render() and "best so far" in env.render()
    assert make().render() is None
