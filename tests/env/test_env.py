"""The single environment as Gymnasium and its users see it."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import warnings
from functools import partial
from itertools import product
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

import gensor_gym
from gensor_gym import hardware, operators
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.graph.actions import NUM_ACTIONS, UNCACHE
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.records.backend import RecordedBackend
from gensor_gym.measure.records.store import Record
from tests.support.env_backends import MadeUpBackend
from tests.support.graph_walks import MACHINES, OPERATORS, SPACES
from tests.support.thorough import thorough_but

ID = "gensor_gym/Construct-v0"
GEMM = "gemm(m=64, n=48, k=40)"


def make(**arguments: Any) -> gymnasium.Env:
    return gymnasium.make(ID, **({"operator": GEMM, "hardware": "h200"} | arguments))


def recorded() -> RecordedBackend:
    """A table with a time for most schedules of a compact space."""
    graph = gensor_gym.ConstructionGraph(GEMM, "h200", space="compact")
    backend = MadeUpBackend()
    schedules = [Schedule(row) for batch in graph.enumerate() for row in batch][:-20]
    measured = backend.measure(graph.operator, schedules, graph.hardware)
    op = str(graph.operator)
    return RecordedBackend([Record("h200", op, str(s), m, 0.0) for s, m in zip(schedules, measured, strict=True)])


def same(a: Any, b: Any) -> bool:
    """Equality of observations and infos, bit for bit."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)
    return a == b or (a != a and b != b)


VIEWS = [{"observation": view, "space": space} for view, space in product(("flat", "dict", "successors"), SPACES)]
CHECKED = [
    {"space": "extended", "observation": "flat"}, {"space": "compact", "observation": "successors"},
    *({"space": "extended", "observation": view, "reward": "best_so_far"} for view in ("flat", "dict")),
    *({"space": "extended", "hardware": machine} for machine in MACHINES), {"space": "compact", "backend": "recorded"},
]  # fmt: skip


@pytest.mark.parametrize("arguments", thorough_but([*CHECKED, *(one for one in VIEWS if one not in CHECKED)], *CHECKED), ids=str)
def test_both_checkers_pass_without_a_warning(arguments: dict[str, Any]) -> None:
    from stable_baselines3.common.env_checker import check_env as check_for_sb3

    env = make(**arguments | ({"backend": recorded()} if "backend" in arguments else {}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check="backend" in arguments)
        if arguments.get("observation") == "successors":
            warnings.filterwarnings("ignore", ".*unconventional shape.*")
        check_for_sb3(env.unwrapped)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(("hardware", "reward"), [("h200", "final"), ("cascade_lake", "final"), ("cascade_lake", "best_so_far")])
def test_two_instances_roll_out_the_same(space: str, hardware: str, reward: str) -> None:
    """50 steps with unmasked actions, over several operators: observations, rewards, flags and infos agree exactly."""
    arguments = {"operator": list(OPERATORS[::3]), "hardware": hardware, "space": space, "reward": reward}
    one, two = make(**arguments), make(**arguments)
    assert same(one.reset(seed=3), two.reset(seed=3))
    one.action_space.seed(0)
    for _ in range(50):
        action = one.action_space.sample()
        left, right = one.step(action), two.step(action)
        assert same(left, right)
        assert one.observation_space.contains(left[0])
        if left[2]:
            assert same(one.reset(), two.reset())


def test_defaults_need_no_arguments() -> None:
    env = gymnasium.make(ID)
    observation, info = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert str(env.unwrapped.graph.operator) == "gemm(m=512, n=512, k=512)"
    assert env.unwrapped.graph.hardware.name == "host" and info["action_mask"].sum() > 1


@pytest.mark.parametrize("make_copy", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_where_the_original_is(make_copy: Any) -> None:
    env = ConstructEnv(operator=[GEMM, OPERATORS[5]], hardware="h200", space="extended")
    env.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(5):
        env.step(int(rng.choice(np.flatnonzero(env.action_masks())[1:])))
    again = make_copy(env)
    for _ in range(30):
        action = int(rng.choice(np.flatnonzero(env.action_masks())))
        left, right = env.step(action), again.step(action)
        assert same(left, right)
        if left[2]:
            assert same(env.reset(), again.reset())


@pytest.mark.parametrize(
    "arguments",
    [
        {"operator": GEMM, "hardware": "h200", "space": "extended", "discount": 0.9, "observation_groups": ["tiles"]},
        {"operator": operators.gemv(8, 12).with_epilogue("relu"), "hardware": hardware.get("t4")},
        {"operator": [operators.gemm(8, 8, 8), "roller/C0"], "hardware": "cascade_lake", "shaping": False},
        {"operator": "roller/D*", "hardware": "h200", "observation": "dict"},
        {"operator": list(OPERATORS[:3]), "hardware": "cascade_lake", "reward": "best_so_far"},
    ],
)
def test_the_specification_round_trips_as_json(arguments: dict[str, Any]) -> None:
    env = gymnasium.make(ID, **arguments)
    text = env.spec.to_json()
    json.loads(text)
    again = gymnasium.make(EnvSpec.from_json(text))
    assert same(env.reset(seed=5), again.reset(seed=5))
    assert env.unwrapped.settings == again.unwrapped.settings
    assert env.unwrapped.tasks.operators == again.unwrapped.tasks.operators
    assert same(env.step(UNCACHE), again.step(UNCACHE))
    assert again.spec.to_json() == text


def test_masks_are_in_info_and_by_method() -> None:
    env = make(space="extended")
    _, info = env.reset(seed=0)
    for _ in range(20):
        mask = info["action_mask"]
        assert mask.dtype == np.int8 and mask.shape == (NUM_ACTIONS,) and mask[0] == 1
        method = env.get_wrapper_attr("action_masks")()
        assert method.dtype == np.bool_ and (method == (mask == 1)).all()
        assert (env.unwrapped.graph.action_mask(env.unwrapped.schedule) == method).all()
        _, _, _, _, info = env.step(env.action_space.sample(mask=mask * (np.arange(NUM_ACTIONS) > 0).astype(np.int8)))
        mask[:] = 0  # the environment keeps no hold on what it hands out
    assert env.unwrapped.action_masks()[0]


def test_random_illegal_actions_never_raise_and_change_nothing() -> None:
    env = make(space="tree")
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(300):
        unwrapped = env.unwrapped
        before, illegal = unwrapped.schedule, ~unwrapped.action_masks()
        action = int(rng.choice(np.flatnonzero(illegal) if rng.random() < 0.7 else np.flatnonzero(~illegal)[-1:]))
        _, reward, terminated, truncated, _ = env.step(action)
        assert not truncated
        if terminated:
            env.reset()
        elif illegal[action]:
            assert unwrapped.schedule == before and reward == pytest.approx(-0.001, abs=1e-12)


def test_what_is_no_whole_number_is_no_action() -> None:
    env = make()
    env.reset(seed=0)
    for action in (1.7, None, "tile", np.array([1, 2])):
        with pytest.raises(ValueError, match="expected a whole number"):
            env.unwrapped.step(action)
    envs = gymnasium.make_vec(ID, 2, operator=GEMM, hardware="h200")
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="actions of float64: expected whole numbers"):
        envs.step(np.array([0.5, 1.2]))
    with pytest.raises(ValueError, match=r"autoreset_mode 'never': expected one of NextStep, SameStep, Disabled"):
        gymnasium.make_vec(ID, 2, operator=GEMM, hardware="h200", autoreset_mode="never")
    with pytest.raises(ValueError, match="which has the environment gensor_gym/Gir-v0"):
        make(operator="softmax(m=4, n=8)")


def test_a_step_needs_a_running_episode() -> None:
    env = ConstructEnv(GEMM, "h200")
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(1)
    env.reset()
    assert env.step(0)[2]
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(1)
    env.reset()
    assert not env.step(5)[2]


def test_reset_starts_from_an_operator_and_a_schedule() -> None:
    env = make(space="extended")
    graph = gensor_gym.ConstructionGraph("gemv(m=100, k=333)", "h200", space="extended")
    schedule = graph.random_schedule(np.random.default_rng(0), steps=12)
    for given in (schedule, str(schedule)):
        env.reset(options={"operator": "gemv(m=100, k=333)", "schedule": given})
        assert env.unwrapped.schedule == schedule
        assert str(env.unwrapped.graph.operator) == "gemv(m=100, k=333)"
    _, info = env.reset(options={"operator": operators.gemm(16, 16, 16)})
    assert env.unwrapped.graph.operator == operators.gemm(16, 16, 16)
    assert env.unwrapped.schedule == env.unwrapped.graph.initial()
    env.reset()
    assert str(env.unwrapped.graph.operator) == GEMM


def test_bad_reset_options_are_named() -> None:
    env = make()
    with pytest.raises(ValueError, match=r"unknown reset options \['shedule'\]; accepted are 'operator', 'schedule'"):
        env.reset(options={"shedule": "x"})
    with pytest.raises(ValueError, match="not a schedule: 'x'"):
        env.reset(options={"schedule": "x"})
    with pytest.raises(ValueError, match="gem"):
        env.reset(options={"operator": "gem(m=1)"})
    other = str(env.unwrapped.graph.initial()).replace("1x1x1x1x1x1x1x1", "1x1x1x1x7x1x1x1")
    with pytest.raises(ValueError, match=r"not legal for gemm\(m=64, n=48, k=40\) in space 'gensor'"):
        env.reset(options={"schedule": other})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"operator": "gem(m=1)"}, "'gem'.*gemm"),
        ({"operator": []}, r"\[\].*Operator"),
        ({"hardware": "h300"}, "'h300'.*h200"),
        ({"backend": "guess"}, "'guess'.*analytic"),
        ({"backend": "cpu"}, "'cpu' cannot run h200"),
        ({"space": "all"}, "'all'.*'gensor'"),
        ({"observation": "image"}, "'image'.*'flat'"),
        ({"observation_groups": ["tile"]}, "'tile'.*'tiles'"),
        ({"observation_groups": []}, "no observation group.*'tiles'"),
        ({"discount": 0.0}, r"discount 0.0 is not in \(0, 1\]"),
        ({"discount": 1.5}, r"discount 1.5 is not in \(0, 1\]"),
        ({"discount": "0.9"}, "discount '0.9' is not in"),
        ({"step_cost": -1.0}, "step_cost -1.0 is negative"),
        ({"step_cost": float("nan")}, "step_cost nan is"),
        ({"step_cost": float("inf")}, "step_cost inf is"),
        ({"backend": None}, "no backend None.*analytic"),
        ({"timing": "old"}, "'old'.*'pooled', 'fresh'"),
        ({"render_mode": "human"}, "'human'.*'ansi', 'rgb_array'"),
        ({"moves": "columns"}, "no moves 'columns': expected 'primitives'; gensor_gym/Write-v0 with choices='columns'"),
        ({"reward": "mean"}, "no reward 'mean'; it is one of .'final', 'best_so_far'"),
    ],
)
def test_bad_arguments_are_named_with_what_is_accepted(arguments: dict[str, Any], message: str) -> None:
    whole = {"operator": GEMM, "hardware": "h200"} | arguments
    for made in (ConstructEnv, partial(ConstructVectorEnv, num_envs=2)):
        with pytest.raises(ValueError, match=message):
            made(**whole)


def test_copies_with_a_live_worker_share_the_backend() -> None:
    """Worker processes are not copied: a copy, also a pickled one, times on this process's own."""
    env = ConstructEnv("gemm(m=4, n=4, k=4)", "host", backend="cpu")
    env.reset(seed=0)
    assert env.step(0)[4]["status"] == "OK"
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        other.reset(seed=0)
        assert other.final.backend is env.final.backend and other.step(0)[4]["status"] == "OK"
    env.close()


def test_the_reward_of_a_slow_program_is_one_call() -> None:
    """`samples` says so, in each form; an illegal program and the model have no samples."""
    operator, named = "gemm(m=256, n=256, k=256)", {"hardware": "host", "backend": "cpu"}  # some 15 ms unscheduled
    env, envs = ConstructEnv(operator, **named), ConstructVectorEnv(2, operator, **named)
    env.reset(seed=0)
    envs.reset(seed=0)
    info, infos = env.step(0)[4], envs.step(np.array([0, 0]))[4]
    assert (info["status"], info["samples"]) == ("OK", 1)
    assert infos["samples"].tolist() == [1, 1] and infos["_samples"].all()
    envs.close()
    adapter = pytest.importorskip("gensor_gym.env.sb3").make_sb3(1, operator=operator, **named)
    adapter.reset()
    assert adapter.step(np.array([0]))[3][0]["samples"] == 1
    adapter.close()
    env.close()


def test_a_machine_that_differs_from_its_name_is_not_written_as_that_name() -> None:
    changed = dataclasses.replace(hardware.get("h200"), units=1)
    assert make(hardware=changed).unwrapped.spec.kwargs["hardware"] == changed
    assert make(hardware=hardware.get("h200")).unwrapped.spec.kwargs["hardware"] == "h200"


def test_close_twice() -> None:
    backend = MadeUpBackend()
    env = make(backend=backend)
    env.reset()
    env.close()
    env.unwrapped.close()
    assert backend.closed == 2
    env = make()
    env.close()
    env.unwrapped.close()


def test_every_operator_of_the_tables_makes_an_environment() -> None:
    env = ConstructEnv("smoke", "h200", space="extended")
    seen = set()
    for seed in range(40):
        observation, _ = env.reset(seed=seed)
        assert env.observation_space.contains(observation)
        seen.add(str(env.graph.operator))
    assert 1 < len(seen) <= len(operators.resolve("smoke"))
