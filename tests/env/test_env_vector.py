"""The vector environment is single environments side by side, in every autoreset mode and on any number of threads."""

from __future__ import annotations

import copy
import json
import os
import pickle
import signal
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from gensor_gym import operators
from gensor_gym.env import process
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.graph.actions import NUM_ACTIONS, STOP
from tests.support.env_backends import MadeUpBackend
from tests.support.graph_walks import OPERATORS, choose
from tests.support.side_by_side import check_side_by_side, equal

ID = "gensor_gym/Construct-v0"
GEMM = "gemm(m=64, n=48, k=40)"
SEVERAL = list(OPERATORS[:6])
BEST = {"reward": "best_so_far"}
ARGUMENTS = [{}, {"backend": "made up"}, {"observation": "dict", "discount": 0.9}, BEST, BEST | {"backend": "made up"}]


@pytest.mark.parametrize("operator", [GEMM, SEVERAL], ids=["one", "several"])
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_each_environment_is_a_single_one(operator: Any, mode: AutoresetMode, arguments: dict[str, Any]) -> None:
    """Observations, rewards, ends, masks, runtimes, and programs that are paid for before the end."""

    def made() -> dict[str, Any]:
        given = {"operator": operator, "hardware": "h200", "space": "extended"} | arguments
        return given | ({"backend": MadeUpBackend()} if "backend" in arguments else {})

    envs = ConstructVectorEnv(5, autoreset_mode=mode, **made())
    singles, rng = [ConstructEnv(**made()) for _ in range(5)], np.random.default_rng(4)
    steps = 300 if "reward" in arguments else 70  # `stop` does not end an episode then
    assert check_side_by_side(envs, singles, mode, steps, lambda masks: choose(masks, rng)) > 8


def test_infos_of_episodes_that_go_on_are_marked_absent() -> None:
    envs = ConstructVectorEnv(3, GEMM, "h200")
    envs.reset(seed=0)
    _, _, ended, _, info = envs.step(np.array([0, 4, 4]))
    assert ended.tolist() == [True, False, False] == info["_runtime_s"].tolist()
    _, rewards, ended, _, info = envs.step(np.array([4, 4, 0]))
    assert rewards[0] == 0.0 and ended.tolist() == [False, False, True]
    _, _, _, _, info = envs.step(np.array([4, 4, 4]))
    assert "runtime_s" not in info and info["_action_mask"].all()


def test_seeds_may_be_a_list() -> None:
    one, two = (ConstructVectorEnv(4, SEVERAL, "h200") for _ in range(2))
    assert equal(one.reset(seed=7)[0], two.reset(seed=[7, 8, 9, 10])[0])
    with pytest.raises(ValueError, match="2 seeds for 4 environments"):
        one.reset(seed=[1, 2])


def test_options_choose_operator_and_schedule_for_all() -> None:
    envs = ConstructVectorEnv(3, GEMM, "h200")
    gemv = operators.gemv(100, 333)
    single = ConstructEnv(gemv, "h200")
    schedule = single.graph.random_schedule(np.random.default_rng(0))
    observations, _ = envs.reset(options={"operator": gemv, "schedule": schedule})
    expected, _ = single.reset(options={"schedule": str(schedule)})
    assert all(equal(row, expected) for row in observations)
    assert envs.schedules == [schedule] * 3 and {str(g.operator) for g in envs.graphs} == {str(gemv)}


def test_a_mask_resets_only_its_environments() -> None:
    envs = ConstructVectorEnv(3, GEMM, "h200", autoreset_mode=AutoresetMode.DISABLED)
    envs.reset(seed=0)
    envs.step(np.array([4, 0, 4]))
    moved = envs.schedules
    with pytest.raises(ValueError, match=r"environments \[1\] have ended.*reset_mask"):
        envs.step(np.array([4, 4, 4]))
    envs.reset(options={"reset_mask": np.array([False, True, False])})
    assert envs.schedules[0] == moved[0] != envs.graphs[0].initial()
    envs.step(np.array([4, 4, 4]))
    for wrong in ([True, False, False], np.zeros(3, dtype=bool), np.ones(2, dtype=bool), np.ones(3)):
        with pytest.raises(ValueError, match=r"reset_mask must be a bool array of shape \(3,\)"):
            envs.reset(options={"reset_mask": wrong})


def test_actions_that_are_a_slice_compile_no_second_step() -> None:
    """Numba compiles a function anew for arrays with gaps, which takes seconds."""
    envs = ConstructVectorEnv(3, operator=GEMM, hardware="h200")
    envs.reset(seed=0)
    envs.step(np.full(3, STOP))
    compiled = set(process.step_range.signatures)
    envs.reset(seed=0)
    *_, info = envs.step(np.full((3, 2), STOP)[:, 1])
    assert compiled and set(process.step_range.signatures) == compiled
    assert info["_runtime_s"].all()
    with pytest.raises(ValueError, match=r"actions of shape \(\) for 3 environments"):
        envs.step(np.int64(STOP))  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", [None, "sync"])
def test_make_vec(mode: str | None) -> None:
    """The registered vector form, and single environments stepped in turn, agree."""
    arguments = {"operator": SEVERAL, "hardware": "h200"}
    envs = gymnasium.make_vec(ID, num_envs=4, vectorization_mode=mode, **arguments)
    native = ConstructVectorEnv(4, **arguments)
    assert envs.observation_space == native.observation_space and envs.action_space == native.action_space
    left, right = envs.reset(seed=1), native.reset(seed=1)
    assert equal(left[0], right[0]) and equal(left[1]["action_mask"], right[1]["action_mask"])
    for _ in range(20):
        actions = np.array([m.nonzero()[0][-1] for m in right[1]["action_mask"]])
        left, right = envs.step(actions), native.step(actions)
        assert equal(left[0], right[0]) and np.allclose(left[1], right[1], atol=0.0)
        right = (right[0], right[4])
    envs.close()
    envs.close()


def test_the_specification_round_trips_as_json() -> None:
    envs = gymnasium.make_vec(ID, num_envs=2, operator=[operators.gemm(8, 8, 8), operators.gemv(8, 8)], hardware="t4")
    text = envs.spec.to_json()
    json.loads(text)
    spec = EnvSpec.from_json(text)
    again = gymnasium.make_vec(spec, num_envs=2)
    assert equal(envs.reset(seed=3)[0], again.reset(seed=3)[0])
    assert envs.discount == again.discount == 1.0


def test_successors_of_a_batch_are_those_of_each() -> None:
    arguments = {"operator": SEVERAL, "hardware": "h200", "observation": "successors"}
    envs, singles = ConstructVectorEnv(4, **arguments), [ConstructEnv(**arguments) for _ in range(4)]
    observations, _ = envs.reset(seed=5)
    assert envs.observation_space.contains(observations)
    assert all(equal(observations[i], env.reset(seed=5 + i)[0]) for i, env in enumerate(singles))


def test_render_gives_a_frame_each() -> None:
    envs = ConstructVectorEnv(2, [GEMM, "gemv(m=8, k=8)"], "h200", render_mode="ansi")
    envs.reset(seed=0)
    frames = envs.render()
    assert len(frames) == 2 and all(str(g.operator) in frame for g, frame in zip(envs.graphs, frames, strict=True))
    assert ConstructVectorEnv(2, GEMM, "h200").render() is None


def test_copies_forks_and_closing_with_threads() -> None:
    """Threads belong to one process and one object: copies, a fork and a closed environment start their own."""
    envs = ConstructVectorEnv(256, GEMM, "h200", threads=2)
    envs.reset(seed=0)
    envs.step(np.full(256, 5))
    copies = [copy.deepcopy(envs), pickle.loads(pickle.dumps(envs))]
    expected = envs.step(np.full(256, 6))[1]
    assert all(np.array_equal(other.step(np.full(256, 6))[1], expected) for other in copies)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # a child that waits for threads it does not have is ended, and fails
        envs.step(np.full(256, 7))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    envs.close()
    assert envs.reset(seed=0)[0].shape == envs.step(np.full(256, 5))[0].shape


def test_step_before_reset_and_bad_counts() -> None:
    envs = ConstructVectorEnv(3, GEMM, "h200")
    with pytest.raises(gymnasium.error.ResetNeeded):
        envs.step(np.zeros(3))
    envs.reset()
    with pytest.raises(ValueError, match=r"actions of shape \(2,\) for 3 environments"):
        envs.step(np.array([1, 2]))
    for count in (0, 1.5, "3"):
        with pytest.raises(ValueError, match="num_envs is"):
            ConstructVectorEnv(count, GEMM, "h200")
    for threads in (0, "x"):
        with pytest.raises(ValueError, match="threads is"):
            ConstructVectorEnv(2, GEMM, "h200", threads=threads)


@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_steps_are_transitions_by_their_definition(operator: str, machine: str) -> None:
    """Rows, masks and rewards are the graph's, worked out from nothing, whatever the action: illegal and out of range too."""
    envs = ConstructVectorEnv(8, operator, machine, space="extended", discount=0.97)
    envs.reset(seed=0)
    rng, graph = np.random.default_rng(3), envs.graphs[0]
    start = graph.latency(graph.initial())
    every = np.tile(np.arange(NUM_ACTIONS), 8)
    for _ in range(30):
        before = envs.rows.copy()
        actions = choose(envs.action_masks(), rng)
        actions[actions == STOP] = NUM_ACTIONS - 1
        actions[0] = rng.choice([-1, NUM_ACTIONS])
        after, _ = graph.transitions(before, actions)
        _, rewards, ended, _, _ = envs.step(actions)
        assert np.array_equal(envs.rows, after) and not ended.any()
        potentials = [np.log(start / graph.latencies(rows)) for rows in (before, after)]
        assert np.allclose(rewards, 0.97 * potentials[1] - potentials[0] - 0.001, rtol=0.0, atol=1e-12)
        _, legal = graph.transitions(np.repeat(after, NUM_ACTIONS, axis=0), every)
        assert np.array_equal(envs.action_masks(), legal.reshape(8, NUM_ACTIONS))
