"""`gensor_gym/Write-v0`: what is written is what was decided, masks shut no legal program out, single and vector agree."""

from __future__ import annotations

import json
import math
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.roofline import CAP_OVER_FLOOR
from gensor_gym.env.writing.decisions import KIND, MOST_SIZES, SIZE, WHOLE
from gensor_gym.env.writing.env import WriteEnv, WriteVectorEnv
from gensor_gym.graph.coordinates import opened
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, SPATIAL_SLOTS, TENSOR_CORE, TILE
from tests.support.side_by_side import check_side_by_side
from tests.support.thorough import thorough_but

GEMM = "gemm(m=64, n=96, k=40)"
HALF = 'gemm(m=256, n=128, k=128, dtype="float16")'
CONV = 'conv2d(n=2, c=32, h=14, w=14, k=64, r=3, s=3, padding=1, dtype="float16")'
IMAGES = 'conv2d(n=6, c=64, h=7, w=7, k=40, r=1, s=1, dtype="float16")'
PLACES = [
    (GEMM, "cascade_lake"), (GEMM, "h200"), (HALF, "h200"), (CONV, "h200"), (IMAGES, "h200"),
    ("reduce_sum(m=8, k=512)", "rtx4090"), ("gemv(m=48, k=57680)", "cascade_lake"),
]  # fmt: skip
PLACES += [("conv2d(n=1, c=16, h=14, w=14, k=32, r=3, s=3, padding=1)", "cascade_lake")]


def decided(env: WriteEnv, row: np.ndarray) -> list[int]:
    """The actions that write a row [ROW]."""
    actions = []
    for decision in env.tasks.decisions[0]:
        if decision.kind == WHOLE:
            places = slice(decision.first, decision.first + MAX_AXES * decision.options.shape[1], MAX_AXES)
            same = (decision.options == row[places]).all(axis=1)
        else:
            place = decision.first + (decision.level * MAX_AXES if decision.kind == SIZE else 0)
            same = decision.options[:, 0] == row[place]
        actions.append(int(np.flatnonzero(same)[0]))
    return actions


def played(env: gymnasium.Env, seed: int) -> tuple[list[float], dict]:
    """Rewards of an episode of random options that keep room, and its last info."""
    observation, info = env.reset(seed=seed)
    rng, rewards, ended = np.random.default_rng(seed), [], False
    while not ended:
        action = int(rng.choice(np.flatnonzero(info["action_mask"])))
        observation, reward, ended, truncated, info = env.step(action)
        assert not truncated and env.observation_space.contains(observation)
        rewards.append(reward)
    return rewards, info


@pytest.mark.parametrize("choices", thorough_but(["sizes", "columns"], "columns"))
@pytest.mark.parametrize(("operator", "hardware"), PLACES)
def test_no_legal_program_is_shut_out(operator: str, hardware: str, choices: str) -> None:
    """Programs at the ends of random walks, of every kind of core, half of them moved to the edges of limits.

    Each decision's mask has it, and it is what is written.
    """
    env = WriteEnv(operator, hardware, space="extended", choices=choices)
    graph, rng = ConstructionGraph(operator, hardware, "extended"), np.random.default_rng(0)
    starts = [Schedule(row) for row in _starts(graph)]
    for trial in range(40):
        row = opened(graph.random_schedule(rng, start=starts[trial % len(starts)]).row, graph.tables.ints)
        if trial % 2:
            row = _at_limits(graph, row, rng)
        _, info = env.reset()
        for action in decided(env, row):
            assert info["action_mask"][action] == 1, (trial, Schedule(row), env.schedule)
            _, reward, ended, _, info = env.step(action)
        assert ended and (env.schedule.row == row).all()
        seconds = graph.latency(Schedule(row))
        assert info["runtime_s"] == seconds and info["status"] == "OK" and info["steps"] == len(env.tasks.decisions[0])
        assert reward == pytest.approx(max(0.0, math.log(CAP_OVER_FLOOR * graph.floor / seconds)), abs=1e-12)


def _at_limits(graph: ConstructionGraph, row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A legal row [ROW] as large as is legal: where a bound that is off by one shows.

    Knobs first, in random order; then the reduction's block tiles, and those inside them as large as the knobs leave.
    """
    columns = graph.coordinates.columns
    knobs = [column for column in columns if column.is_knob]
    rest = [column for column in columns if TILE + SPATIAL_SLOTS <= column.first < TILE + MAX_AXES]
    for column in (*(knobs[i] for i in rng.permutation(len(knobs))), *rest):
        order = np.lexsort(column.values.T[:2])[::-1]
        row = next((one for one in column.every(row)[order] if graph.is_legal(Schedule(one))), row)
    return row


def _starts(graph: ConstructionGraph) -> np.ndarray:
    """Where walks begin that meet every kind of program."""
    from gensor_gym.graph.starts import starts

    return starts(graph.tables, graph.initial().row)


def test_walks_of_the_test_meet_tensor_cores() -> None:
    """Without which the test above would say nothing of them."""
    graph = ConstructionGraph(HALF, "h200", "extended")
    assert set(_starts(graph)[:, TENSOR_CORE].tolist()) == {0, 1, 2}


@pytest.mark.parametrize("hardware", thorough_but(["cascade_lake", "h200"], "cascade_lake"))
def test_every_program_of_a_small_space_is_written(hardware: str) -> None:
    """Of space compact, all that is legal, and by masks nothing else."""
    small = "gemm(m=16, n=20, k=4)"
    graph = ConstructionGraph(small, hardware, "compact")
    legal = {row.tobytes() for rows in graph.enumerate() for row in rows}
    env = WriteEnv(small, hardware, space="compact")
    found, open_ways = set(), [[]]
    while open_ways:
        way = open_ways.pop()
        _, info = env.reset()
        for action in way:
            _, _, ended, _, info = env.step(action)
        if way and ended:
            if info["status"] == "OK":
                found.add(env.schedule.row.tobytes())
            continue
        open_ways += [[*way, int(action)] for action in np.flatnonzero(info["action_mask"])]
    assert found == legal


@pytest.mark.parametrize(("operator", "hardware"), PLACES)
def test_random_play_is_legal_where_tiles_are_all_there_is(operator: str, hardware: str) -> None:
    """In space gensor, which has no knobs that ask for larger tiles, masks are exact: 20 episodes, none illegal."""
    env = WriteEnv(operator, hardware)
    for seed in range(20):
        rewards, info = played(env, seed)
        assert info["status"] == "OK" and rewards[:-1] == [0.0] * (len(rewards) - 1)
        assert len(rewards) == len(env.tasks.decisions[0])


@pytest.mark.thorough
def test_much_of_random_play_is_legal_with_knobs() -> None:
    """In space extended some limits meet only at the end: three in ten of the programs and more are legal all the same.

    Half of those of a convolution of 16 bits are to be on wgmma, whose columns and panels meet registers and shared memory.
    """
    for operator, hardware in PLACES:
        env = WriteVectorEnv(128, operator, hardware, space="extended", autoreset_mode="Disabled")
        env.reset(seed=0)
        rng, ended = np.random.default_rng(0), np.zeros(128, dtype=bool)
        while not ended.any():
            masks = env.action_masks()
            _, _, ended, _, info = env.step((rng.random(masks.shape) * masks).argmax(axis=1))
        assert ended.all() and (info["status"] == "OK").mean() > 0.3, operator


def test_what_is_no_option_or_leaves_no_room() -> None:
    """The first leaves what is decided as it is, the second is taken: its program is not legal and pays nothing."""
    env = WriteEnv("gemm(m=512, n=512, k=512)", "cascade_lake")
    env.reset()
    kinds = [decision.kind for decision in env.tasks.decisions[0]]
    for _ in kinds:
        _, reward, ended, _, info = env.step(MOST_SIZES - 1)
    assert ended and info["status"] == "OK" and (env.schedule.row[:KNOB] <= env.tasks.initial[0][:KNOB]).all()
    env.reset()
    for decision in env.tasks.decisions[0]:
        _, reward, ended, _, info = env.step(len(decision.options) - 1)
    assert ended and reward == 0.0 and info["status"] == "ILLEGAL" and info["runtime_s"] == math.inf and "regret" not in info


def test_illegal_programs_are_not_measured() -> None:
    """A measured tier is asked about legal programs alone."""

    class Refusing:
        name = "refusing"

        def measure(self, *_: object) -> list:
            raise AssertionError("an illegal program was measured")

        def close(self) -> None:
            return None

    env = WriteVectorEnv(2, "gemm(m=512, n=512, k=512)", "cascade_lake", autoreset_mode="Disabled")
    env.final.backend = Refusing()  # type: ignore[assignment]
    env.reset(seed=0)
    for decision in env.tasks.decisions[0]:
        _, rewards, ended, _, info = env.step(np.full(2, len(decision.options) - 1))
    assert ended.all() and (rewards == 0.0).all() and info["status"].tolist() == ["ILLEGAL", "ILLEGAL"]


@pytest.mark.parametrize("choices", ["sizes", "columns"])
@pytest.mark.parametrize("mode", thorough_but(AutoresetMode, AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP))
def test_single_and_vector_agree(choices: str, mode: AutoresetMode) -> None:
    arguments = {"operator": [GEMM, "gemm(m=33, n=20, k=7)"], "hardware": "h200", "space": "extended", "choices": choices}
    envs, rng = WriteVectorEnv(3, autoreset_mode=mode, threads=1, **arguments), np.random.default_rng(5)  # type: ignore[arg-type]
    singles = [WriteEnv(**arguments) for _ in range(3)]  # type: ignore[arg-type]
    assert check_side_by_side(envs, singles, mode, 60, lambda masks: (rng.random(masks.shape) * masks).argmax(axis=1)) > 5


@pytest.mark.parametrize("choices", ["sizes", "columns"])
def test_checkers_accept_it(choices: str) -> None:
    """Gymnasium's and stable-baselines3's, for both kinds of observation; it pickles, and its specification is text."""
    from stable_baselines3.common.env_checker import check_env as check_for_sb3

    for observation in ("flat", "dict"):
        env = WriteEnv(GEMM, "cascade_lake", choices=choices, observation=observation)
        check_env(env, skip_render_check=True)
        check_for_sb3(WriteEnv(GEMM, "cascade_lake", choices=choices, observation=observation))
        assert played(pickle.loads(pickle.dumps(env)), 3)[0] == played(env, 3)[0]
    made = gymnasium.make("gensor_gym/Write-v0", operator=GEMM, hardware="h200", choices=choices)
    assert json.loads(json.dumps(made.spec.kwargs))["choices"] == choices  # type: ignore[union-attr]
    assert gymnasium.make_vec("gensor_gym/Write-v0", num_envs=2, operator=GEMM).num_envs == 2


def test_pictures_of_a_program_under_way() -> None:
    """As text and as an image."""
    for mode, kind in (("ansi", str), ("rgb_array", np.ndarray)):
        env = WriteEnv(GEMM, "cascade_lake", render_mode=mode)
        env.reset()
        env.step(3)
        assert isinstance(env.render(), kind)


def test_facts_of_decisions() -> None:
    """An axis is written from the innermost tile outwards, knobs before all of them."""
    env = WriteEnv(GEMM, "h200", space="extended")
    kinds = env.tasks.written.facts[0, :, KIND].tolist()
    first = kinds.index(SIZE)
    assert SIZE not in kinds[:first] and all(d.first >= KNOB for d in env.tasks.decisions[0][:first])
    levels = [d.level for d in env.tasks.decisions[0] if d.kind == SIZE]
    assert levels == [0, 1] * 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"choices": "tiles"}, "choices 'tiles'"),
        ({"masked": 2}, "masked 2"),
        ({"observation": "graph"}, "observation 'graph' of Write-v0"),
        ({"observation_groups": ["terms"]}, "group 'terms'"),
        ({"operator": "gemm(m=1, n=1, k=1)"}, "nothing to write"),
        ({"operator": "gemm(m=720720, n=8, k=8)"}, "sizes of tiles"),
    ],
)
def test_bad_arguments_are_named(arguments: dict, said: str) -> None:
    """With what would be accepted."""
    with pytest.raises(ValueError, match=said):
        WriteEnv(**({"operator": GEMM, "hardware": "cascade_lake"} | arguments))


def test_episodes_begin_with_nothing_written() -> None:
    """A schedule to start from is refused; an operator that needs more actions than there are, too."""
    env = WriteEnv(GEMM, "cascade_lake", choices="columns")
    with pytest.raises(ValueError, match="nothing written"):
        env.reset(options={"schedule": ConstructionGraph(GEMM, "cascade_lake").initial()})
    with pytest.raises(ValueError, match="options of a decision"):
        env.reset(options={"operator": "gemm(m=2048, n=2048, k=2048)"})


def test_a_policy_of_stable_baselines3_learns_here() -> None:
    """MaskablePPO through the adapter; what its monitor keeps of episodes has their regret, nan where no optimum is known."""
    from sb3_contrib import MaskablePPO

    from gensor_gym.env.sb3 import make_writing_sb3

    env = make_writing_sb3(4, operator=["gemm(m=512, n=512, k=512)", GEMM], hardware="h200")
    model = MaskablePPO("MlpPolicy", env, n_steps=16, batch_size=32, n_epochs=1, seed=0, policy_kwargs={"net_arch": [8]})
    model.learn(128)
    kept = [info["regret"] for info in model.ep_info_buffer]
    assert model.num_timesteps == 128 and any(regret > 0.0 for regret in kept) and any(math.isnan(regret) for regret in kept)
