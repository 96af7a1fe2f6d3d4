"""Environments of fused operators: episodes, the graph view, the adapter to stable-baselines3."""

from __future__ import annotations

import json
import math
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.env_checker import check_env as check_for_sb3

from agents.policies.fused_parts import part
from gensor_gym import dataflow, hardware
from gensor_gym.dataflow.table import fused_operator
from gensor_gym.env.fused.env import GirEnv, GirVectorEnv
from gensor_gym.env.fused.graph_view import KINDS
from gensor_gym.env.fused.observation import GROUPS
from gensor_gym.env.fused.text import as_text
from gensor_gym.env.sb3 import make_fused_sb3
from gensor_gym.gir.actions import NUM_ACTIONS, STOP
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.placement import Level
from gensor_gym.gir.schedule import GirSchedule
from tests.support.side_by_side import check_side_by_side
from tests.support.thorough import thorough_but

ID = "gensor_gym/Gir-v0"
OPERATORS = ["softmax(m=64, n=96)", "layernorm(m=40, n=77)", "rmsnorm(m=8, n=32)"]
HW = "cascade_lake"


def played(env: gymnasium.Env, seed: int) -> list[tuple[float, bool, dict]]:
    """Steps of an episode of random legal actions."""
    _, info = env.reset(seed=seed)
    rng, steps, ended = np.random.default_rng(seed), [], False
    while not ended:
        action = int(rng.choice(np.flatnonzero(info["action_mask"])[1:])) if info["action_mask"][1:].any() else STOP
        _, reward, ended, truncated, info = env.step(action)
        assert not truncated
        steps.append((reward, ended, info))
    return steps


def test_checkers_accept_it() -> None:
    """Gymnasium's and stable-baselines3's, for every kind of observation."""
    from stable_baselines3.common.env_checker import check_env as check_for_sb3

    for observation in ("flat", "dict", "successors"):
        env = GirEnv(OPERATORS[0], HW, observation=observation)
        check_env(env, skip_render_check=True)
        check_for_sb3(GirEnv(OPERATORS[0], HW, observation=observation))


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_rewards_are_the_process_of_construct(discount: float) -> None:
    """discount * Phi(s') - Phi(s) - c for a step, R - Phi(s) at the end, worked out from the model alone."""
    env = GirEnv(OPERATORS[1], HW, discount=discount, step_cost=0.01)
    env.reset(seed=3)
    start, rng = env.graph.latency(env.graph.initial()), np.random.default_rng(3)
    for _ in range(12):
        before = math.log(start / env.graph.latency(env.schedule))
        _, reward, ended, _, _ = env.step(int(rng.choice(np.flatnonzero(env.action_masks())[1:])))
        after = math.log(start / env.graph.latency(env.schedule))
        assert not ended and reward == pytest.approx(discount * after - before - 0.01, abs=1e-12)
    seconds = env.graph.latency(env.schedule)
    _, reward, ended, _, info = env.step(STOP)
    assert ended and info["runtime_s"] == seconds and info["status"] == "OK" and info["steps"] == 12
    final = max(0.0, math.log(1000 * env.graph.floor / seconds))
    assert reward == pytest.approx(final - math.log(start / seconds), abs=1e-12)
    assert info["regret"] == pytest.approx(math.log(seconds / env.graph.optimum()[1])) and info["regret"] >= 0


def test_an_illegal_action_changes_nothing_and_costs_its_step() -> None:
    """As does one that is no action at all."""
    env = GirEnv(OPERATORS[0], HW)
    env.reset(seed=0)
    illegal = int(np.flatnonzero(~env.action_masks())[0])
    before, left = env.schedule, env.remaining
    for action in (illegal, NUM_ACTIONS + 5):
        _, reward, ended, _, info = env.step(action)
        assert reward == pytest.approx(-0.001) and not ended and env.schedule == before
        assert (info["action_mask"] == env.action_masks()).all()
    assert env.remaining == left - 2


def test_the_horizon_ends_an_episode_and_only_stop_is_left_before_it() -> None:
    """Whatever is chosen with one step left counts as `stop`."""
    env = GirEnv(OPERATORS[2], HW)
    _, info = env.reset(seed=1)
    for _ in range(env.graph.horizon - 1):
        _, _, ended, _, info = env.step(NUM_ACTIONS)
        assert not ended
    assert info["action_mask"].sum() == 1 and info["action_mask"][STOP]
    _, _, ended, _, info = env.step(1)
    assert ended and info["steps"] == env.graph.horizon - 1
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)


def test_greedy_play_by_the_successors_view_reaches_the_optimum_of_a_small_task() -> None:
    """The best successor by the view is the best by the model."""
    env = GirEnv(OPERATORS[2], HW, observation="successors")
    view, _ = env.reset(seed=0)
    while True:
        gains = np.where(view[:, 0] > 0, view[:, 1], -np.inf)
        gains[STOP] = 0.0
        best = int(np.argmax(gains))
        after = {a: env.graph.latency(s) for a, s in env.graph.successors(env.schedule).items()}
        if best == STOP:
            assert min(after.values()) >= env.graph.latency(env.schedule)
            break
        assert after[best] == pytest.approx(min(after.values()))
        view, *_ = env.step(best)
    assert env.graph.latency(env.schedule) <= 1.5 * env.graph.optimum()[1]


@pytest.mark.parametrize("mode", thorough_but(AutoresetMode, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED))
def test_vector_and_single_agree(mode: AutoresetMode) -> None:
    """For tasks drawn at random."""
    envs, singles = GirVectorEnv(6, OPERATORS, HW, autoreset_mode=mode), [GirEnv(OPERATORS, HW) for _ in range(6)]
    rng = np.random.default_rng(0)
    assert check_side_by_side(envs, singles, mode, 70, lambda masks: (rng.random(masks.shape) * masks).argmax(axis=1)) > 5


def test_one_seed_is_one_curve() -> None:
    """Number for number, and pickled in the middle."""
    first, second = (GirEnv(OPERATORS, HW) for _ in range(2))
    assert [step[0] for step in played(first, 7)] == [step[0] for step in played(second, 7)]
    again = pickle.loads(pickle.dumps(first))
    assert [step[0] for step in played(again, 8)] == [step[0] for step in played(second, 8)]


def test_spec_goes_through_json() -> None:
    """An operator as an object comes back as its text; one of one's own too."""
    mine = dataflow.parse("def mine(x: float32[8, 16]):\n    y = exp(x)\n    return y\n")
    for operator in (dataflow.make("softmax", m=8, n=16), mine, "rmsnorm(m=8, n=16)"):
        env = gymnasium.make(ID, operator=operator, hardware=HW)
        text = env.spec.to_json()
        again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(text))
        assert again.unwrapped.graph.operator == env.unwrapped.graph.operator, json.loads(text)


def test_reset_starts_anywhere() -> None:
    """With another operator, and a schedule as an object or its text."""
    env = GirEnv(OPERATORS[0], HW)
    wanted = GirSchedule.parse("vector=8 tile=2 rows=2 place=sram,recompute")
    for schedule in (wanted, str(wanted)):
        env.reset(options={"operator": "softmax(m=32, n=64)", "schedule": schedule})
        assert env.schedule == wanted and str(env.graph.operator) == "softmax(m=32, n=64)"
    for options, words in (
        ({"schedule": "vector=8 place=reg,reg tile=2 rows=8"}, "not legal"),
        ({"schedule": 3}, "takes a GirSchedule"), ({"operator": "gemm(m=4, n=4, k=4)"}, "Construct-v0"), ({"x": 1}, "unknown"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            env.reset(options=options)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"operator": []}, "empty"), ({"hardware": "mi300x"}, "32 lanes"), ({"space": "gensor"}, "expected one of gir"),
        ({"observation": "tree"}, "flat"), ({"observation_groups": ["tiles"]}, "no observation group"),
        ({"observation_groups": []}, "no observation group"), ({"observation_groups": 5}, "groups 5: expected a list of names"),
        ({"observation_groups": "nest"}, "'nest': expected a list"), ({"observation_groups": [["nest"]]}, "expected a list"),
        ({"operator": None}, "operator None: expected a fused operator"), ({"shaping": "maybe"}, "expected True or False"),
        ({"operator": "sofmax(m=4, n=4)"}, "softmax"), ({"render_mode": "human"}, "render_mode"), ({"discount": 2.0}, "discount"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(arguments: dict, words: str) -> None:
    """Each with what would be accepted."""
    with pytest.raises(ValueError, match=words):
        GirEnv(**{"operator": OPERATORS[0], "hardware": HW, **arguments})


def test_renders_as_text_and_picture() -> None:
    """The text names every instruction's slices; the picture is an image that says more than white."""
    env = GirEnv(OPERATORS[0], HW, render_mode="ansi")
    env.reset()
    text = env.render()
    assert "kernel 1" in text and "e.all.dram" in text and "reduce max x.reg" in text
    env = GirEnv(OPERATORS[0], HW, render_mode="rgb_array")
    env.reset()
    image = env.render()
    assert image.dtype == np.uint8 and image.shape[2] == 3 and 0.7 < (image == 255).mean() < 0.99


def test_text_says_who_shares_the_work() -> None:
    """Of blocks and lanes on a GPU, of parts of rows where one is long on a CPU."""
    words = {
        ("softmax(m=4096, n=4096)", "h100", "vector=4 tile=2 rows=4 loop=4 place=dram,sram"):
        "kernel 0: 256 blocks of 1024 threads; for each step of 4 of 4096 rows, 256 lanes a row, 4 steps a block\n"
        "  for each 2048 of 4096 columns\n    x.reg[4x2048] = move x.dram[4x2048]",
        ("norm(m=1024, n=1024)", "h100", "vector=4 tile=2 rows=1 loop=16"):
        "of 1 row, 1024 lanes a row, 1 steps a block, 8 blocks share a row",
        ("norm(m=1024, n=1024)", "cascade_lake", "vector=16 tile=2 rows=4 loop=4"):
        "step of 4 of 64 parts of 1 row, 4 steps a task",
    }  # fmt: skip
    for (operator, machine, schedule), expected in words.items():
        graph = GirGraph(fused_operator(operator), hardware.get(machine))
        assert expected in as_text(graph, graph.parse(schedule))


ARGUMENTS = {"operator": "layernorm(m=40, n=77)", "hardware": "cascade_lake", "observation": "graph"}
AT = len(KINDS) + 5


def test_nodes_are_the_values_and_edges_who_reads_them() -> None:
    env = GirEnv(**ARGUMENTS)  # type: ignore[arg-type]
    view, _ = env.reset(seed=0)
    nest = env.graph.nest
    names = [cell.name for cell in nest.cells]
    assert env.observation_space.contains(view) and len(view.nodes) == len(names) + 1
    kinds = [KINDS[int(place)] for place in view.nodes[:, : len(KINDS)].argmax(axis=1)]
    assert kinds == [*("load" if c.is_load else "reduce" if c.is_reduction else "map" for c in nest.cells), "program"]
    read = {(names[a], names[b]) for a, b in view.edge_links if a < len(names)}
    assert read == {(source, cell.name) for cell in nest.cells for source in cell.sources}
    assert {int(b) for a, b in view.edge_links if a == len(names)} == set(range(len(names)))
    kept = {names[a] for (a, _), edge in zip(view.edge_links, view.edges, strict=True) if edge[1]}
    assert kept == set(nest.crossing)


def test_placements_and_the_model_are_on_it() -> None:
    env, flat = GirEnv(**ARGUMENTS), GirEnv(**{**ARGUMENTS, "observation": "dict"})  # type: ignore[arg-type]
    schedule = GirSchedule.parse("vector=8 place=sram,recompute")
    view, _ = env.reset(options={"schedule": schedule})
    groups, _ = flat.reset(options={"schedule": schedule})
    levels = view.nodes[:, AT : AT + len(Level)]
    crossing = [place for place, cell in enumerate(env.graph.nest.cells) if cell.name in env.graph.nest.crossing]
    assert sorted(Level(int(levels[place].argmax())) for place in crossing) == [Level.RECOMPUTE, Level.SRAM]
    assert levels.sum() == len(crossing)
    whole = np.concatenate([groups[name] for name in ("header", "speed", "terms", "remaining", "nest")])
    np.testing.assert_array_equal(view.nodes[-1, -len(whole) :], whole)


def test_the_checker_accepts_it_and_several_side_by_side_are_the_same() -> None:
    check_env(GirEnv(**ARGUMENTS), skip_render_check=True)  # type: ignore[arg-type]
    envs, env = GirVectorEnv(2, **ARGUMENTS), GirEnv(**ARGUMENTS)  # type: ignore[arg-type]
    views, info = envs.reset(seed=0)
    alone, _ = env.reset(seed=0)
    for _ in range(4):
        assert all(np.array_equal(getattr(views[1], name), getattr(alone, name)) for name in ("nodes", "edges", "edge_links"))
        action = int(np.flatnonzero(info["action_mask"][1])[-1])
        views, _, _, _, info = envs.step(np.array([action, action]))
        alone, *_ = env.step(action)


sb3 = pytest.importorskip("stable_baselines3")



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
