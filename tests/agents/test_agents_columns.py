"""A policy that writes programs column by column: what it sees, its chances, its weights, how it learns, what a search gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from agents import get_strategy  # noqa: E402
from agents.columns.choices import CHOICE_FEATURES, COLUMN_FEATURES, SEES, Choices, is_joint  # noqa: E402
from agents.columns.learner import ColumnLearner, weights_of  # noqa: E402
from agents.columns.network import ColumnNetwork  # noqa: E402
from agents.columns.policy import BARREN, KNOWN, Columns, Memory, write  # noqa: E402
from agents.hybrids.annealed import ColumnsAnnealing  # noqa: E402
from agents.learners.stored import POLICY, save_tensors  # noqa: E402
from agents.policies.training_tasks import bound  # noqa: E402
from agents.training.state.archive import read_state, write_state  # noqa: E402
from gensor_gym.construction import ConstructionGraph  # noqa: E402
from gensor_gym.graph.tables.layout import KNOB, LAYOUT_VERSION  # noqa: E402

SETTINGS: dict[str, Any] = {
    "name": "columns", "width": 16, "tasks": 2, "programs": 16, "best": 0.25, "learning_rate": 0.01,
    "final_learning_rate": 0.001, "entropy": 0.01, "final_entropy": 0.0,
}  # fmt: skip
TASKS = [("gemm(m=96, n=80, k=64)", "h200", "gensor"), ("conv2d(n=1, c=8, h=14, w=14, k=16, r=3, s=3)", "zen5_1c", "extended")]


def network(width: int = 16, seed: int = 0) -> ColumnNetwork:
    torch.manual_seed(seed)
    return ColumnNetwork(width)


def learner(**changed: object) -> ColumnLearner:
    graphs = [ConstructionGraph(op, "h200") for op in ("gemm(m=96, n=80, k=64)", "gemv(m=80, k=64)")]
    return ColumnLearner({**SETTINGS, **changed}, graphs, 3200, 0)


def checkpoint(folder: Path, of: ColumnNetwork | None = None, **card: object) -> str:
    """A folder as training leaves it."""
    folder.mkdir(exist_ok=True)
    save_tensors(folder / POLICY, (of or network()).state_dict())
    env = {"hardware": "h200", "space": "gensor"}
    known = {"agent": "columns", "config": {"agent": SETTINGS, "env": env}, "layout": LAYOUT_VERSION, "sees": SEES}
    known |= {"operators": ["gemm(m=16, n=16, k=16)"], "training_seconds": 1.0}
    (folder / "card.json").write_text(json.dumps({**known, **bound(known["operators"], env), **card}))
    return str(folder)


@pytest.mark.parametrize(("operator", "hardware", "space"), TASKS)
def test_choices_are_described_once_each_and_knobs_come_first(operator: str, hardware: str, space: str) -> None:
    choices = Choices(ConstructionGraph(operator, hardware, space))
    starts = [column.first for column in choices.columns]
    assert [start >= KNOB for start in starts] == sorted((start >= KNOB for start in starts), reverse=True)
    assert choices.features.shape == (sum(choices.counts), CHOICE_FEATURES) and np.isfinite(choices.features).all()
    assert choices.column_features.shape == (len(choices.counts), COLUMN_FEATURES)
    edges = np.cumsum([0, *choices.counts])
    for low, high in zip(edges, edges[1:], strict=False):
        assert len(np.unique(choices.features[low:high], axis=0)) == high - low, "no two choices look alike"


def test_a_choice_looks_the_same_whatever_the_other_axes_are() -> None:
    """And a column of another extent has the same sizes where these are the same."""
    of, other = (Choices(ConstructionGraph(f"gemm(m=64, n={n}, k=32)", "h200")) for n in (48, 96))
    count = of.counts[0]
    assert np.array_equal(of.features[:count], other.features[:count]), "axis m"
    assert not np.array_equal(of.column_features[1], other.column_features[1]), "axis n"


def test_rows_are_the_choices_in_the_order_of_the_columns() -> None:
    choices = Choices(ConstructionGraph("gemm(m=96, n=80, k=64)", "h200", "extended"))
    chosen = np.random.default_rng(0).integers(choices.counts, size=(20, len(choices.counts)))
    for row, picked in zip(choices.rows(chosen), chosen, strict=True):
        for column, choice in zip(choices.columns, picked, strict=True):
            np.testing.assert_array_equal(row[column.places], column.values[choice])


def test_programs_are_drawn_with_the_chances_that_are_told() -> None:
    choices, net = Choices(ConstructionGraph("gemm(m=2, n=2, k=3)", "h200")), network()
    draws = np.random.default_rng(0).random((40_000, len(choices.counts)))
    with torch.no_grad():
        chosen, chances, entropy = net(choices, draws)
    programs, first, counts = np.unique(chosen, axis=0, return_index=True, return_counts=True)
    told = np.exp(chances.numpy()[first])
    assert len(programs) == np.prod(choices.counts) and told.sum() == pytest.approx(1.0, abs=1e-4)
    np.testing.assert_allclose(counts / len(draws), told, atol=4 * np.sqrt(told.max() / len(draws)))
    assert entropy.numpy().mean() == pytest.approx(-(told * np.log(told)).sum(), rel=0.01), "that of the programs, on average"


def test_a_higher_temperature_spreads_the_chances() -> None:
    choices, net = Choices(ConstructionGraph("gemm(m=96, n=80, k=64)", "h200")), network()
    draws = np.random.default_rng(0).random((64, len(choices.counts)))
    with torch.no_grad():
        cold, warm = (float(net(choices, draws, t)[2].mean()) for t in (0.2, 5.0))
        greedy, alone, _ = net(choices, None)
        _, others, _ = net(choices, draws)
    assert cold < warm and len(greedy) == 1 and alone[0] > others.median()


def test_weights_are_ranks_below_the_best_share() -> None:
    seconds = np.array([3.0, 1.0, np.inf, 2.0, 4.0])
    weights = weights_of(seconds, 0.5)
    np.testing.assert_allclose(weights + 0.6, [0.0, 2.0, 0.0, 1.0, 0.0], atol=1e-6)
    tied = weights_of(np.array([1.0, 1.0, 5.0, 9.0, 9.0]), 0.5)
    assert tied[0] == tied[1] > tied[2] == tied[3] and tied.sum() == pytest.approx(0.0, abs=1e-6)
    assert (weights_of(np.full(4, np.inf), 0.5) == 0).all() and weights_of(np.full(4, 2.0), 0.5) == pytest.approx(0.0)


@pytest.mark.thorough
def test_it_learns_and_is_better_than_without() -> None:
    learned = learner()
    judge = Choices(ConstructionGraph("gemm(m=96, n=80, k=64)", "h200"))

    def best(net: ColumnNetwork) -> float:
        """Mean over draws of the best of four."""
        found = [judge.graph.latencies(write(net, judge, 4, Memory(1.0), np.random.default_rng(i))).min() for i in range(12)]
        return float(np.log(found).mean())

    before = best(learned.network)
    rewards = [learned.advance() for _ in range(100)]
    assert learned.num_timesteps == 3200 and np.mean(rewards[-20:]) > np.mean(rewards[:20]) + 0.5
    assert best(learned.network) < before - 0.2


def test_a_learner_goes_on_from_its_state_number_for_number(tmp_path: Path) -> None:
    whole, part = learner(), learner()
    rewards = [whole.advance() for _ in range(6)]
    assert [part.advance() for _ in range(3)] == rewards[:3]
    write_state(tmp_path / "state", {}, part.state())
    other = learner()
    other.restore(read_state(tmp_path / "state", lambda _: None))
    assert [other.advance() for _ in range(3)] == rewards[3:]
    for mine, theirs in zip(whole.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_search_gets_different_legal_programs_at_an_evaluation_each(tmp_path: Path) -> None:
    graph = ConstructionGraph("gemm(m=96, n=80, k=64)", "h200")
    found = Columns(space="gensor", checkpoint=checkpoint(tmp_path), episodes=20).construct(graph, np.random.default_rng(0))
    assert len(set(found.schedules)) == 20 == found.evaluations == graph.evaluations
    assert all(graph.is_legal(schedule) for schedule in found.schedules)
    assert list(found.latencies) == sorted(found.latencies)


def test_the_first_program_is_the_most_probable_that_fits(tmp_path: Path) -> None:
    graph, net = ConstructionGraph("gemm(m=8, n=8, k=8)", "h200"), network(seed=3)
    strategy = Columns(space="gensor", checkpoint=checkpoint(tmp_path, net), episodes=1)
    first = {strategy.construct(graph, np.random.default_rng(seed)).schedules[0] for seed in range(4)}
    choices = Choices(graph)
    with torch.no_grad():
        row = choices.rows(net(choices, None)[0])
    assert len(first) == 1 and np.array_equal(next(iter(first)).row, row[0])


class Scripted:
    """Stands for a network: the most probable program, then blocks as they are told, their first program the most probable."""

    def __init__(self, choices: Choices, greedy: list[int], blocks: list[list[list[int]]]) -> None:
        self.choices, self.greedy, self.blocks, self.asked = choices, greedy, blocks, 0

    def __call__(self, _choices: Choices, draws: np.ndarray | None, _temperature: float, _room: Any) -> tuple[Any, Any, None]:
        if draws is None:
            return np.array([self.greedy]), torch.zeros(1), None
        block = self.blocks[min(self.asked, len(self.blocks) - 1)]
        self.asked += 1
        return np.array(block), -torch.arange(float(len(block))), None


def by_legality(choices: Choices) -> tuple[list[list[int]], list[list[int]]]:
    """Some legal programs of a graph, and some that do not fit."""
    vectors = np.random.default_rng(0).integers(choices.counts, size=(4000, len(choices.counts)))
    fitting = choices.graph.fits(choices.rows(vectors))
    return vectors[fitting].tolist(), vectors[~fitting].tolist()


def test_where_the_most_probable_does_not_fit_the_next_stands_in_its_place() -> None:
    choices = Choices(ConstructionGraph("gemm(m=256, n=256, k=64)", "h200"))
    legal, illegal = by_legality(choices)
    net = Scripted(choices, illegal[0], [[illegal[1], legal[0], legal[1], legal[2]]])
    rows = write(net, choices, 1, Memory(1.0), np.random.default_rng(0))
    assert np.array_equal(rows, choices.rows(np.array(legal[:1])))


def test_few_legal_draws_are_not_taken_for_few_programs_left() -> None:
    choices = Choices(ConstructionGraph("gemm(m=256, n=256, k=64)", "h200"))
    legal, illegal = by_legality(choices)
    barren = [[legal[i], *illegal[:50]] for i in range(40)]  # a block has one legal program, which is new
    rows = write(Scripted(choices, illegal[0], barren), choices, 40, Memory(1.0), np.random.default_rng(0))
    assert len(rows) == len({row.tobytes() for row in rows}) > 20
    stuck = Scripted(choices, illegal[0], [[*legal[:3], *illegal[:10]]])
    assert len(write(stuck, choices, 40, Memory(1.0), np.random.default_rng(0))) == 3 and stuck.asked <= 2 + KNOWN
    none = Scripted(choices, illegal[0], [illegal[:10]])
    assert len(write(none, choices, 40, Memory(1.0), np.random.default_rng(0))) == 0 and none.asked == BARREN


def test_the_temperature_has_an_end() -> None:
    memory = Memory(1.0)
    for _ in range(10_000):
        memory.adapt(0, 10)
    assert 1.0 < memory.temperature < 1e5
    memory.adapt(10, 10)
    assert memory.warmer < 40


def test_rounds_never_come_back_and_end_when_all_is_written(tmp_path: Path) -> None:
    graph = ConstructionGraph("gemm(m=2, n=2, k=3)", "h200")
    strategy = Columns(space="gensor", checkpoint=checkpoint(tmp_path), episodes=8, temperature=3.0)
    rounds = list(strategy.rounds(graph, np.random.default_rng(0)))
    assert [len(found.schedules) for found in rounds][:5] == [1, 1, 2, 4, 8]
    programs = [schedule for found in rounds for schedule in found.schedules]
    assert len(set(programs)) == len(programs) == sum(map(len, graph.enumerate()))


def test_chains_go_on_from_what_was_written(tmp_path: Path) -> None:
    graph = ConstructionGraph("gemm(m=96, n=80, k=64)", "h200")
    given: dict[str, Any] = {"space": "gensor", "checkpoint": checkpoint(tmp_path), "episodes": 8}
    written = Columns(**given).construct(graph, np.random.default_rng(0))
    found = ColumnsAnnealing(**given, chains=2, chain_steps=16).construct(graph, np.random.default_rng(0))
    assert set(written.schedules) < set(found.schedules) and found.latencies[0] <= written.latencies[0]
    assert found.evaluations == 8 + 2 * 17


def test_what_cannot_be_is_named(tmp_path: Path) -> None:
    graph = ConstructionGraph("gemm(m=96, n=80, k=64)", "h200")
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="temperature=0"):
        get_strategy("columns", temperature=0)
    with pytest.raises(FileNotFoundError, match="experiments train"):
        Columns(checkpoint=str(tmp_path / "none")).construct(graph, rng)
    with pytest.raises(ValueError, match="observes what version 1 of agent columns does, this is version"):
        Columns(checkpoint=checkpoint(tmp_path / "old", sees=1)).construct(graph, rng)
    with pytest.raises(ValueError, match="agent 'ppo'"):
        Columns(checkpoint=checkpoint(tmp_path / "other", agent="ppo")).construct(graph, rng)
    for changed, word in (({"width": 0}, "agent.width"), ({"best": 0.0}, "agent.best"), ({"programs": 1}, "agent.programs")):
        with pytest.raises(ValueError, match=word):
            learner(**changed)
    maps = [ConstructionGraph('elementwise(name="exp", shape=(64, 64))', "h200")]
    assert not is_joint(maps[0]) and is_joint(graph)
    with pytest.raises(ValueError, match="several axes"):
        ColumnLearner(SETTINGS, maps, 100, 0)
