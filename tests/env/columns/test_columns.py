"""`moves="columns"`: an action sets a whole column, single and vector agree, all else of the process is as before."""

from __future__ import annotations

import copy
import json
import math
import pickle
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from gensor_gym.cost.roofline import CAP_OVER_FLOOR
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.graph.actions import STOP
from gensor_gym.graph.coordinates import opened
from gensor_gym.graph.tables.layout import KNOB
from tests.support.env_backends import MadeUpBackend
from tests.support.graph_walks import OPERATORS

GEMM = "gemm(m=64, n=48, k=40)"


def drawn(masks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A legal action of each, `stop` only where nothing else is."""
    masks = masks.copy()
    masks[:, STOP] &= ~masks[:, 1:].any(axis=1)
    return np.where(masks, rng.random(masks.shape), -1.0).argmax(axis=1)


@pytest.mark.parametrize("hardware_name", ["h200", "cascade_lake"])
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_rewards_are_those_of_the_process(hardware_name: str, discount: float) -> None:
    """Potentials of the programs before and after, R at the end; an illegal action changes nothing and costs its step."""
    env = ConstructEnv(GEMM, hardware_name, space="extended", moves="columns", discount=discount, step_cost=0.01)
    rng = np.random.default_rng(1)
    for _ in range(3):
        env.reset()
        graph, ended = env.graph, False
        start = graph.latency(graph.initial())
        while not ended:
            mask, before = env.action_masks(), env.schedule
            legal = rng.random() < 0.8
            action = int(drawn(mask[None], rng)[0]) if legal else int(rng.choice(np.flatnonzero(~mask)))
            last = env.remaining == 1
            _, reward, ended, truncated, info = env.step(action)
            potential, after = (math.log(start / graph.latency(one)) for one in (before, env.schedule))
            assert not truncated and ended == last and (env.schedule == before) == (last or not mask[action])
            if not ended:
                assert reward == pytest.approx(discount * after - potential - 0.01, abs=1e-12)
                continue
            gain = max(0.0, math.log(CAP_OVER_FLOOR * graph.floor / graph.latency(env.schedule)))
            assert reward == pytest.approx(gain - potential, abs=1e-12)
            assert info["runtime_s"] == graph.latency(env.schedule) and info["status"] == "OK"


def test_the_horizon_is_eight_and_four_for_every_column() -> None:
    """Of every task its own; the steps left are observed as a share of it, and with one left only `stop` is legal."""
    env = ConstructEnv([GEMM, "gemv(m=100, k=333)"], "h200", moves="columns", observation="dict")
    for operator, columns in ((GEMM, 3), ("gemv(m=100, k=333)", 2)):
        observation, _ = env.reset(options={"operator": operator})
        horizon = 8 + 4 * columns
        assert env.remaining == horizon and observation["remaining"][0] == 1.0
        for step in range(horizon - 1):
            observation, _, ended, _, info = env.step(env.tasks.num_actions - 1 - step % 2)
            assert not ended and observation["remaining"][0] == pytest.approx((horizon - 1 - step) / horizon)
        assert np.flatnonzero(info["action_mask"]).tolist() == [STOP]
        assert env.step(5)[2]


def test_episodes_begin_at_the_same_programs() -> None:
    """All levels are opened, which changes no program: features are those of primitives but for level and steps left."""
    arguments = {"operator": GEMM, "hardware": "h200", "space": "extended", "observation": "dict"}
    ones = [ConstructEnv(moves=moves, **arguments) for moves in ("primitives", "columns")]  # type: ignore[arg-type]
    schedule = ones[0].graph.random_schedule(np.random.default_rng(0), steps=7)
    for options in ({}, {"schedule": schedule}):
        seen = [env.reset(options=options)[0] for env in ones]
        assert all(np.array_equal(seen[0][name], seen[1][name]) for name in seen[0] if name not in ("level", "remaining"))
        row = ones[0].schedule.row
        assert np.array_equal(ones[1].schedule.row, opened(row, ones[0].graph.tables.ints))


@pytest.mark.parametrize("reward", ["final", "best_so_far"])
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("backend", ["analytic", "made up"])
def test_vector_environments_are_single_ones(mode: AutoresetMode, reward: str, backend: str) -> None:
    """Observations, rewards, masks and facts of several episodes on two operators, in every autoreset mode."""
    count, facts_of = 4, ("runtime_s", "status", "steps")

    def made() -> dict[str, Any]:
        given = {"operator": [GEMM, "gemv(m=100, k=333)"], "hardware": "h200", "space": "extended"}
        return given | {"moves": "columns", "reward": reward, "backend": backend if backend == "analytic" else MadeUpBackend()}

    envs, ones = ConstructVectorEnv(count, autoreset_mode=mode, **made()), [ConstructEnv(**made()) for _ in range(count)]
    seen, _ = envs.reset(seed=5)
    own = [env.reset(seed=5 + i)[0] for i, env in enumerate(ones)]
    rng, over, ends = np.random.default_rng(5), np.zeros(count, dtype=bool), 0
    for _ in range(150):
        if mode is AutoresetMode.DISABLED and over.any():
            seen, _ = envs.reset(options={"reset_mask": over})
            own = [env.reset()[0] if over[i] else own[i] for i, env in enumerate(ones)]
            over[:] = False
        masks = envs.action_masks()
        assert all(np.array_equal(seen[i], own[i]) for i in range(count))
        assert all(np.array_equal(masks[i], env.action_masks()) for i, env in enumerate(ones))
        actions = np.where(rng.random(count) < 0.1, STOP, drawn(masks, rng))
        actions = np.where(rng.random(count) < 0.1, rng.integers(masks.shape[1], size=count), actions)
        seen, rewards, ended, _, info = envs.step(actions)
        for i, env in enumerate(ones):
            if over[i]:  # NEXT_STEP: this step of the vector form is a reset
                own[i], over[i] = env.reset()[0], False
                assert rewards[i] == 0.0 and not ended[i]
                continue
            own[i], gained, done, _, facts = env.step(int(actions[i]))
            assert rewards[i] == gained and ended[i] == done
            assert ("paid_s" in facts) == ("_paid_s" in info and bool(info["_paid_s"][i]))
            if "paid_s" in facts:
                assert (info["paid_s"][i], info["paid_status"][i]) == (facts["paid_s"], facts["paid_status"])
            if done:
                told = info["final_info"] if mode is AutoresetMode.SAME_STEP else info
                names = (*facts_of, "paid") if reward == "best_so_far" else facts_of
                assert all(told[name][i] == facts[name] and told[f"_{name}"][i] for name in names)
                assert reward == "final" or np.array_equal(told["best"][i], facts["best"])
                over[i], ends = mode is not AutoresetMode.SAME_STEP, ends + 1
                own[i] = own[i] if over[i] else env.reset()[0]
    assert ends > 8


@pytest.mark.parametrize("reward", ["final", "best_so_far"])
def test_threads_copies_and_saved_states_go_on_alike(reward: str) -> None:
    """One thread or three; a copy, a pickle, and another environment that is given the state."""
    arguments = {"operator": list(OPERATORS[:3]), "hardware": "h200", "moves": "columns", "reward": reward}
    envs = [ConstructVectorEnv(400, threads=threads, **arguments) for threads in (1, 3, 1)]  # type: ignore[arg-type]
    for one in envs[:2]:
        one.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(4):
        actions = np.where(rng.random(400) < 0.3, STOP, drawn(envs[0].action_masks(), rng))
        left, right = (one.step(actions) for one in envs[:2])
        assert all(np.array_equal(a, b) for a, b in zip(left[:3], right[:3], strict=True))
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


@pytest.mark.parametrize("reward", ["final", "best_so_far"])
@pytest.mark.parametrize("observation", ["flat", "dict"])
def test_both_checkers_pass_without_a_warning(observation: str, reward: str) -> None:
    from stable_baselines3.common.env_checker import check_env as check_for_sb3

    for moves in ("columns", "primitives"):
        env = ConstructEnv(GEMM, "h200", space="extended", observation=observation, moves=moves, reward=reward)
        made = gymnasium.make("gensor_gym/Construct-v0", operator=GEMM, hardware="h200", observation=observation, moves=moves)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(made.unwrapped)
            check_env(env, skip_render_check=True)
            check_for_sb3(env)


def test_specifications_round_trip_and_seeds_decide() -> None:
    """Made by id, single and vector; two with one seed play the same."""
    arguments = {"operator": list(OPERATORS[:3]), "hardware": "cascade_lake", "moves": "columns", "reward": "best_so_far"}
    env = gymnasium.make("gensor_gym/Construct-v0", **arguments)
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))  # type: ignore[union-attr]
    assert json.loads(env.spec.to_json())["kwargs"]["moves"] == "columns"  # type: ignore[union-attr]
    assert env.unwrapped.settings == again.unwrapped.settings  # type: ignore[attr-defined]
    played = []
    for one in (env, again):
        _, info = one.reset(seed=3)
        rng, rewards, ended = np.random.default_rng(3), [], False
        while not ended:
            _, reward, ended, _, info = one.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
            rewards.append(reward)
        played.append((rewards, info["best"].tolist()))
    assert played[0] == played[1]
    for mode in (None, "sync"):
        envs = gymnasium.make_vec("gensor_gym/Construct-v0", num_envs=3, vectorization_mode=mode, **arguments)
        assert envs.reset(seed=1)[0].shape[0] == 3 and envs.single_action_space == env.action_space


def test_actions_say_what_they_do() -> None:
    """By the column that they set; the same action is about the same column of every operator."""
    env = ConstructEnv([GEMM, "gemm(m=512, n=8, k=8)"], "h200", space="extended", moves="columns")
    env.reset(options={"operator": GEMM})
    rng = np.random.default_rng(0)
    for action in rng.choice(np.flatnonzero(env.action_masks())[1:], 40, replace=False):
        env.reset(options={"operator": GEMM})
        text = env.meaning(int(action))
        env.step(int(action))
        name, value = text.split(" to ")
        if name.startswith("axis"):
            slot = int(name.split()[1])
            sizes = "x".join(str(size) for size in env.schedule.tile[:, slot])
            assert value == f"{sizes} vthread {env.schedule.vthread[slot]}"
        else:
            assert str(env.schedule.knob(name)) == value
        env.reset(options={"operator": "gemm(m=512, n=8, k=8)"})
        if action < env.tasks.places.starts[KNOB]:
            places, row = env.tasks.places, env.graph.coordinates
            own = [c for c in row.movable() if places.starts[c.first] <= action < places.starts[c.first] + len(c.values)]
            assert not own or env.meaning(int(action)).startswith(name)
    assert env.meaning(0) == "stop" and ConstructEnv(GEMM, "h200").meaning(5).startswith("tile")
    with pytest.raises(ValueError, match=f"action {env.tasks.num_actions} is none"):
        env.meaning(env.tasks.num_actions)
    with pytest.raises(ValueError, match="action 73 is none"):
        ConstructEnv(GEMM, "h200").meaning(73)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"moves": "rows"}, "no moves 'rows'; it is one of .'primitives', 'columns'"),
        ({"reward": "mean"}, "no reward 'mean'; it is one of .'final', 'best_so_far'"),
        ({"moves": "columns", "space": "tree"}, "space 'tree' has no way back.*'extended'"),
        ({"moves": "columns", "space": "all"}, "'all'.*'gensor'"),
        ({"moves": "columns", "observation": "successors"}, "observation 'successors' has a row.*'flat', 'dict', 'graph'"),
    ],
)
def test_bad_arguments_are_named_with_what_is_accepted(arguments: dict[str, Any], said: str) -> None:
    whole = {"operator": GEMM, "hardware": "h200"} | arguments
    with pytest.raises(ValueError, match=said):
        ConstructEnv(**whole)
    with pytest.raises(ValueError, match=said):
        ConstructVectorEnv(2, **whole)


def test_an_operator_that_asks_for_more_actions_is_refused() -> None:
    """The action space is fixed; the environment goes on with those that it has."""
    env = ConstructEnv([GEMM, "gemm(m=512, n=8, k=8)"], "h200", moves="columns")
    with pytest.raises(ValueError, match=r"n=2048.*values of axis 4; this environment has \d+ actions"):
        env.reset(options={"operator": "gemm(m=8, n=2048, k=8)"})
    with pytest.raises(ValueError, match="n=2048"):
        env.reset(options={"operator": "gemm(m=8, n=2048, k=8)"})
    env.reset(options={"operator": "gemm(m=32, n=16, k=8)"})
    assert len(env.tasks.graphs) == 3 and env.observation_space.contains(env.step(3)[0])


def test_an_operator_with_one_program_has_stop_alone() -> None:
    env = ConstructEnv("gemm(m=1, n=1, k=1)", "h200", moves="columns")
    _, info = env.reset()
    assert env.action_space.n == 1 and info["action_mask"].tolist() == [1] and env.step(0)[2]


def test_pictures_of_programs() -> None:
    for mode, kind in (("ansi", str), ("rgb_array", np.ndarray)):
        env = ConstructEnv(GEMM, "cascade_lake", render_mode=mode, moves="columns")
        env.reset()
        env.step(7)
        assert isinstance(env.render(), kind)


def test_recorded_times_pay_and_know_the_best() -> None:
    """With the tables that ship: what is not recorded pays nothing, and regret is known where a table is complete."""
    arguments = {"operator": "gemm(m=64, n=64, k=512)", "hardware": "zen5_1c", "space": "compact", "backend": "recorded"}
    env, rng, regrets = ConstructEnv(moves="columns", reward="best_so_far", **arguments), np.random.default_rng(0), []
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
