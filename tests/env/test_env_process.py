"""The decision process: rewards step by step, the return's identity, the horizon, rewards of measured tiers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gensor_gym import ConstructionGraph
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.graph.actions import NUM_ACTIONS, UNCACHE
from gensor_gym.graph.schedule import Schedule
from tests.support.env_backends import MadeUpBackend
from tests.support.graph_walks import OPERATORS, SPACES

GEMM = "gemm(m=64, n=48, k=40)"
STEP_COST = 0.01


def episode(env: ConstructEnv, rng: np.random.Generator, illegal: float = 0.1) -> tuple[list[float], dict[str, Any]]:
    """Rewards and last info of an episode of random actions, some illegal; it ends by stop or at the horizon."""
    rewards, terminated, info = [], False, {}
    stop = rng.choice([0.02, 0.2])
    while not terminated:
        mask = env.action_masks()
        others = np.flatnonzero(mask)[1:]
        if rng.random() < illegal:
            others = np.flatnonzero(~mask)
        action = 0 if len(others) == 0 or rng.random() < stop else int(rng.choice(others))
        _, reward, terminated, truncated, info = env.step(action)
        assert type(reward) is float and type(terminated) is bool and truncated is False
        rewards.append(reward)
    return rewards, info


def final_reward(graph: ConstructionGraph, seconds: float) -> float:
    return max(0.0, math.log(1000.0 * graph.floor / seconds))


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("hardware", ["h200", "t4", "cascade_lake"])
def test_the_return_is_the_final_reward_less_the_steps(space: str, hardware: str) -> None:
    """With discount 1, whatever was done on the way; the same without shaping."""
    rng = np.random.default_rng(0)
    for shaping in (True, False):
        env = ConstructEnv(list(OPERATORS), hardware, space=space, step_cost=STEP_COST, shaping=shaping)
        for seed in range(8):
            env.reset(seed=seed)
            rewards, info = episode(env, rng)
            assert info["status"] == "OK" and info["steps"] == len(rewards) - 1
            assert info["runtime_s"] == env.graph.latency(env.schedule)
            expected = final_reward(env.graph, info["runtime_s"]) - STEP_COST * info["steps"]
            assert sum(rewards) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("discount", [1.0, 0.9, 0.5])
@pytest.mark.parametrize("shaping", [True, False])
def test_every_reward_is_the_formula(discount: float, shaping: bool) -> None:
    rng = np.random.default_rng(1)
    arguments = {"space": "extended", "discount": discount, "step_cost": STEP_COST, "shaping": shaping}
    env = ConstructEnv([GEMM, OPERATORS[5], OPERATORS[10]], "h200", **arguments)
    for seed in range(6):
        env.reset(seed=seed)
        start, terminated = env.graph.latency(env.graph.initial()), False

        def potential(schedule: Schedule, env: ConstructEnv = env, start: float = start) -> float:
            return shaping * math.log(start / env.graph.latency(schedule))

        while not terminated:
            before, mask = env.schedule, env.action_masks()
            action = int(rng.integers(NUM_ACTIONS)) if rng.random() < 0.3 else int(rng.choice(np.flatnonzero(mask)))
            remaining = env.remaining
            _, reward, terminated, _, info = env.step(action)
            if terminated:
                assert action == 0 or remaining == 1
                assert env.schedule == before
                expected = final_reward(env.graph, info["runtime_s"]) - potential(before)
            else:
                after = env.graph.transition(before, action)
                assert env.schedule == after and env.remaining == remaining - 1
                expected = discount * potential(after) - potential(before) - STEP_COST
            assert reward == pytest.approx(expected, abs=1e-9)


def test_a_later_start_has_its_own_potential() -> None:
    """Potentials are relative to the unscheduled program also where an episode starts elsewhere."""
    env = ConstructEnv(GEMM, "h200", step_cost=STEP_COST)
    schedule = env.graph.random_schedule(np.random.default_rng(3))
    env.reset(options={"schedule": schedule})
    _, reward, terminated, _, info = env.step(0)
    potential = math.log(env.graph.latency(env.graph.initial()) / env.graph.latency(schedule))
    assert terminated and info["steps"] == 0
    assert reward == pytest.approx(final_reward(env.graph, info["runtime_s"]) - potential, abs=1e-9)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("last", [0, 1, UNCACHE, NUM_ACTIONS - 1])
def test_at_the_horizon_only_stop_is_left(space: str, last: int) -> None:
    env = ConstructEnv(GEMM, "cascade_lake", space=space)
    _, info = env.reset(seed=0)
    horizon = env.graph.horizon
    assert env.remaining == horizon
    for step in range(horizon - 1):
        assert info["action_mask"].sum() > 1
        _, reward, terminated, truncated, info = env.step(UNCACHE)  # illegal at the start: it costs its step
        assert not terminated and not truncated and env.remaining == horizon - 1 - step
        assert reward == pytest.approx(-env.settings.step_cost)
    assert info["action_mask"].tolist() == [1] + [0] * (NUM_ACTIONS - 1)
    before = env.schedule
    _, _, terminated, truncated, info = env.step(last)
    assert terminated is True and truncated is False
    assert info["steps"] == horizon - 1 and env.schedule == before == env.graph.initial()


def test_the_last_legal_move_too_leaves_only_stop() -> None:
    """The mask of a state reached by a legal action in the last but one step."""
    env = ConstructEnv(GEMM, "h200")
    env.reset()
    for _ in range(env.graph.horizon - 2):
        env.step(UNCACHE)
    observation, _, terminated, _, info = env.step(int(np.flatnonzero(env.action_masks())[1]))
    assert not terminated and env.schedule != env.graph.initial()
    assert info["action_mask"].sum() == 1 and env.observation_space.contains(observation)


def test_measured_times_are_the_final_reward_and_failures_give_none() -> None:
    backend = MadeUpBackend()
    env = ConstructEnv([GEMM, OPERATORS[4]], "h200", backend=backend, step_cost=STEP_COST)
    rng = np.random.default_rng(2)
    failed = 0
    for seed in range(40):
        env.reset(seed=seed)
        rewards, info = episode(env, rng)
        seconds = backend.expected(backend.digest(env.graph.operator, env.schedule, env.graph.hardware))
        failed += seconds is None
        gained = 0.0 if seconds is None else final_reward(env.graph, seconds)
        assert info["status"] == ("CRASHED" if seconds is None else "OK")
        assert info["runtime_s"] == (math.inf if seconds is None else seconds)
        assert sum(rewards) == pytest.approx(gained - STEP_COST * info["steps"], abs=1e-9)
    assert 0 < failed < 40


@pytest.mark.parametrize(("timing", "measurements"), [("pooled", 1), ("fresh", 3)])
def test_timing_says_whether_a_program_is_timed_again(timing: str, measurements: int) -> None:
    """A schedule and the same with the next level opened are one program."""
    backend = MadeUpBackend()
    env = ConstructEnv(GEMM, "h200", backend=backend, timing=timing)
    for actions in ([0], [0], [17, 0]):
        env.reset()
        for action in actions:
            _, _, terminated, _, _ = env.step(action)
        assert terminated
    assert str(env.graph.actions[17]) == "cache" and env.schedule.level == 1
    assert len(backend.measured) == measurements and len(set(backend.measured)) == 1
