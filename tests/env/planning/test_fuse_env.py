"""`gensor_gym/Fuse-v0`: the process is Construct-v0's, single and vector agree, checkers accept it, its optimum is known."""

from __future__ import annotations

import math
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from experiments.benches.environment.plans import REPEATS, rates
from gensor_gym.dataflow.text import text_of
from gensor_gym.env.planning.env import FuseEnv, FuseVectorEnv
from gensor_gym.env.planning.features import NODE, PART
from gensor_gym.env.sb3 import make_planning_sb3
from gensor_gym.networks.fusion.prices import price
from gensor_gym.networks.plan import Plan
from gensor_gym.networks.planning.drawn import PARTS, drawn, names_of, network_of
from gensor_gym.networks.planning.state import APART, JOIN, NUM_ACTIONS, STOP
from tests.support.side_by_side import check_side_by_side
from tests.support.thorough import thorough_but

ID, HW = "gensor_gym/Fuse-v0", "cascade_lake"
NAMES = ["layered(seed=4)", "attending(seed=6)"]
NETWORKS = [network_of(drawn(name)) for name in NAMES]  # type: ignore[arg-type]


def played(env: gymnasium.Env, seed: int, network: str | None = None) -> list[tuple[float, dict]]:
    """(reward, info) of the steps of an episode of random legal actions."""
    _, info = env.reset(seed=seed, options={"operator": network} if network else None)
    rng, steps, ended = np.random.default_rng(seed), [], False
    while not ended:
        legal = np.flatnonzero(info["action_mask"])
        _, reward, ended, truncated, info = env.step(int(rng.choice(legal[1:])) if len(legal) > 1 else STOP)
        assert not truncated
        steps.append((reward, info))
    return steps


@pytest.mark.parametrize("observation", ["flat", "dict", "successors", "graph"])
def test_checkers_accept_it(observation: str) -> None:
    """Gymnasium's, and stable-baselines3's where it knows the space."""
    from stable_baselines3.common.env_checker import check_env as check_for_sb3

    check_env(FuseEnv(NAMES[0], HW, observation=observation), skip_render_check=True)
    if observation != "graph":
        check_for_sb3(FuseEnv(NAMES[0], HW, observation=observation))


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_rewards_are_the_process_of_construct(discount: float) -> None:
    """Worked out from the prices of the plans alone; the end tells plan, seconds and regret against the proved optimum."""
    env = FuseEnv(NETWORKS[1], HW, discount=discount, step_cost=0.01)
    env.reset(seed=3)
    start, rng, steps = price(env.schedule, env.tasks.hardware), np.random.default_rng(3), 0
    while len(legal := np.flatnonzero(env.action_masks())[1:]) and steps < 12:
        before = math.log(start / price(env.schedule, env.tasks.hardware))
        _, reward, ended, _, _ = env.step(int(rng.choice(legal)))
        after = math.log(start / price(env.schedule, env.tasks.hardware))
        assert not ended and reward == pytest.approx(discount * after - before - 0.01, abs=1e-9)
        steps += 1
    seconds = price(env.schedule, env.tasks.hardware)
    _, reward, ended, _, info = env.step(STOP)
    assert ended and info["runtime_s"] == pytest.approx(seconds) and info["status"] == "OK" and info["steps"] == steps
    final = max(0.0, math.log(1000 * env.graph.floor / seconds))
    assert reward == pytest.approx(final - math.log(start / seconds), abs=1e-9)
    assert info["regret"] == pytest.approx(math.log(seconds / env.graph.best.seconds)) and info["regret"] >= 0
    assert Plan.parse(NETWORKS[1], info["plan"]) == env.schedule and not env.schedule.fault


def test_decisions_towards_the_optimum_have_no_regret_and_idle_ones_cost_their_step() -> None:
    env = FuseEnv(NAMES[1], HW)
    env.reset(seed=0)
    illegal, left = int(np.flatnonzero(~env.action_masks())[-1]), env.remaining
    for action in (illegal, NUM_ACTIONS + 5):
        observed, reward, ended, _, _ = env.step(action)
        assert reward == pytest.approx(-0.001) and not ended and len(env.schedule.pieces) == len(env.graph.of.names)
    assert env.remaining == left - 2
    for action in env.graph.towards(env.graph.best.plan):
        assert env.action_masks()[action]
        observed, *_ = env.step(action)
    assert not env.action_masks()[1:].any() and env.observation_space.contains(observed)
    assert env.step(STOP)[4]["regret"] == pytest.approx(0.0, abs=1e-9)
    _, info = env.reset()
    for _ in range(env.graph.horizon - 1):
        assert not env.step(NUM_ACTIONS)[2]
    assert env.step(APART)[2], "with one step left any action counts as stop"


@pytest.mark.parametrize("mode", thorough_but(AutoresetMode, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED))
def test_vector_and_single_agree(mode: AutoresetMode) -> None:
    envs, singles = FuseVectorEnv(4, NETWORKS, HW, autoreset_mode=mode), [FuseEnv(NETWORKS, HW) for _ in range(4)]
    rng = np.random.default_rng(0)
    assert check_side_by_side(envs, singles, mode, 60, lambda masks: (rng.random(masks.shape) * masks).argmax(axis=1)) > 5


def test_one_seed_is_one_curve_and_a_state_is_restored() -> None:
    """Number for number, pickled in the middle, through gymnasium's JSON, and by another vector environment."""
    first, second = (FuseEnv(NAMES, HW) for _ in range(2))
    assert [reward for reward, _ in played(first, 7)] == [reward for reward, _ in played(second, 7)]
    text = gymnasium.make(ID, operator=NAMES, hardware=HW).spec.to_json()
    made = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(text))
    again = pickle.loads(pickle.dumps(first))
    assert [reward for reward, _ in played(again, 8)] == [reward for reward, _ in played(made, 8)]
    envs, others = (gymnasium.make_vec(ID, num_envs=3, operator=NAMES, hardware=HW) for _ in range(2))
    envs.reset(seed=5)
    others.restore(envs.state())
    assert (envs.step(np.full(3, APART))[0] == others.step(np.full(3, APART))[0]).all()
    adapter = make_planning_sb3(2, operator=NAMES[0], hardware=HW)
    assert adapter.reset().shape == (2, *adapter.observation_space.shape) and len(adapter.env_method("action_masks")) == 2


def test_the_graph_view_shows_network_pieces_and_cursor() -> None:
    env = FuseEnv(NAMES[0], HW, observation="graph")
    seen, _ = env.reset(seed=0)
    count, links = len(env.graph.of.names), len(env.graph.links)
    assert seen.nodes.shape[0] == count + 1 and seen.edge_links.shape == (links + count, 2)
    at = seen.edge_links[seen.edges[:, 1] == 1.0]
    assert at.tolist() == [list(env.graph.link_of(env.graph.first))] and seen.edges[:links, 0].sum() == 0
    assert seen.nodes[at[0][0], NODE + PART] == seen.nodes[at[0][1], NODE + PART + 1] == 1.0
    assert env.action_masks()[JOIN] and env.step(JOIN)[0].edges[:links, 0].sum() == 1


def test_random_networks_are_apart() -> None:
    """No graph is in two parts, the unseen family is in its part alone, and text and graph are the same network."""
    digests = {part: {drawn(name).digest for name in names_of(part)} for part in PARTS}  # type: ignore[union-attr]
    assert {part: len(some) for part, some in digests.items()} == {part: len(seeds) for part, seeds in PARTS.items()}
    assert len(set.union(*digests.values())) == sum(map(len, PARTS.values()))
    assert [part for part in PARTS if any("gated" in name for name in names_of(part))] == ["unseen"]
    graph = drawn(NAMES[0])
    assert graph is not None and FuseEnv(text_of(graph), HW).graph.first.seconds == FuseEnv(graph, HW).graph.first.seconds
    seen = [played(FuseEnv("train", HW), seed, NAMES[0]) for seed in (0, 1)]
    assert [reward for reward, _ in seen[0]] != [reward for reward, _ in seen[1]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"operator": []}, "expected a network"), ({"operator": "gemm(m=4, n=4, k=4)"}, "expected a network"),
        ({"operator": None}, "operator None"), ({"operator": "normd(seed=1)"}, "such as normed"),
        ({"operator": [NAMES[0], "nonsense(seed=1)"]}, "operator 'nonsense"), ({"observation": "tree"}, "flat"),
        ({"observation_groups": ["nest"]}, "groups are"), ({"observation_groups": []}, "no observation group"),
        ({"render_mode": "human"}, "render_mode"), ({"discount": 2.0}, "discount"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(arguments: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FuseEnv(**{"operator": NAMES[0], "hardware": HW, **arguments})


def test_renders_as_text_and_picture() -> None:
    env = FuseEnv(NAMES[0], HW, render_mode="ansi")
    env.reset()
    assert f"{len(env.graph.of.names)} kernels" in env.render().splitlines()[0]
    env = FuseEnv(NAMES[0], HW, render_mode="rgb_array")
    env.reset()
    image = env.render()
    assert image.dtype == np.uint8 and image.shape[2] == 3 and 0.3 < (image == 255).mean() < 0.99


def test_the_bench_plays_fresh_decisions() -> None:
    assert len(found := rates(1, 0, warm=2, timed=1)) == REPEATS and min(found) > 0
