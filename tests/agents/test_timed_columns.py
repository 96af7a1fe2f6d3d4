"""Training of a column policy on kernel times: recorded and predicted times, demonstrations, and learning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("pandas")

from agents.columns.choices import Choices  # noqa: E402
from agents.columns.demonstrations import demonstrated  # noqa: E402
from agents.columns.network import network_of  # noqa: E402
from agents.hybrids import timed_columns as timed  # noqa: E402
from agents.hybrids.timed_columns import Recorded, TimedColumnLearner, Times, recorded, tasks  # noqa: E402
from gensor_gym import operators  # noqa: E402
from gensor_gym.graph.schedule import Schedule  # noqa: E402
from gensor_gym.measure.records import measured  # noqa: E402
from tests.agents.test_agents_columns import SETTINGS  # noqa: E402

MACHINE = "zen4_1c"


class Ratio:
    """A correction by which every program takes `factor` times as long as by the model, or its index more."""

    def __init__(self, factor: float, slope: float = 0.0) -> None:
        self.factor, self.slope = factor, slope

    def log_ratio(self, features: np.ndarray) -> np.ndarray:
        return np.log(self.factor) + self.slope * np.arange(len(features))


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two products of the shipped table, the weights of one constant."""
    of = measured.load(MACHINE, "train")
    ran = of[of.status == "OK"]
    named = [next(text for text in ran.operator.unique() if str(text).startswith(start)) for start in ("gemm(", "frozen gemm(")]
    found = of[of.operator.isin(named)]
    monkeypatch.setattr(measured, "load", lambda machine, part: found)
    recorded.cache_clear()
    yield found[found.status == "OK"]
    recorded.cache_clear()


def first(table: Any) -> tuple[Choices, Recorded]:
    graph = tasks(MACHINE, "extended")[0]
    return Choices(graph), recorded(MACHINE, "extended")[str(graph.operator)]


def test_tasks_are_the_recorded_operators_on_their_machine(table: Any) -> None:
    graphs = tasks(MACHINE, "extended")
    assert {str(graph.operator) for graph in graphs} == set(map(str, table.operator.unique())) and len(graphs) == 2
    assert {graph.hardware.digest for graph in graphs} == {measured.here(MACHINE).digest}
    assert sum(len(one.rows) for one in recorded(MACHINE, "extended").values()) == len(table)


def test_a_recorded_program_has_its_time_and_another_the_predicted_one(table: Any) -> None:
    choices, known = first(table)
    times = Times(choices, known, [Ratio(3.0)])  # type: ignore[list-item]
    rows = table[table.operator == str(choices.graph.operator)]
    vectors = [choices.vector_of(choices.opened(Schedule.parse(text).row)) for text in rows.schedule]
    kept = [place for place, vector in enumerate(vectors) if vector is not None]
    assert len(kept) > 5
    found = times.seconds(np.array([vectors[place] for place in kept]))
    assert found == pytest.approx(rows.quiet.to_numpy()[kept])
    drawn = np.random.default_rng(0).integers(choices.counts, size=(400, len(choices.counts)))
    legal = choices.legal(drawn)
    new = np.array([row.tobytes() not in times.known for row in choices.rows(drawn)])
    assert 0 < legal.sum() < 400 and np.isinf(times.seconds(drawn)[~legal]).all()
    drawn = drawn[legal & new]
    scale = times.seconds(drawn) / choices.graph.latencies(choices.rows(drawn))
    expected = np.exp(np.log(known.seconds).mean() - np.log(choices.graph.latencies(known.rows)).mean())
    assert scale == pytest.approx(np.full(len(drawn), expected)), "a correction's factor is fitted to the recorded programs"


def test_where_corrections_differ_a_program_counts_as_slower(table: Any) -> None:
    choices, known = first(table)
    rng = np.random.default_rng(0)
    drawn = rng.integers(choices.counts, size=(200, len(choices.counts)))
    drawn = drawn[choices.legal(drawn)][:20]
    one, other = Ratio(1.0), Ratio(1.0, 0.2)
    alone = [Times(choices, known, [of]).seconds(drawn) for of in (one, other)]  # type: ignore[list-item]
    logs = np.log(alone)
    together = np.log(Times(choices, known, [one, other]).seconds(drawn))  # type: ignore[list-item]
    assert together == pytest.approx(logs.mean(axis=0) + logs.std(axis=0)) and (logs.std(axis=0) > 0.01).any()


def test_demonstrations_are_the_fastest_recorded_programs(table: Any) -> None:
    choices, known = first(table)
    fast = timed.fast(choices, known)
    times = Times(choices, known, [Ratio(1.0)]).seconds(fast)  # type: ignore[list-item]
    assert 0 < len(fast) <= len(known.rows) and times.max() <= timed.WITHIN * known.seconds.min()
    learner = TimedColumnLearner({**SETTINGS, "measured": MACHINE}, [choices.graph], 3200, 0)
    assert np.array_equal(learner.demonstrations(choices), fast)
    some = np.resize(fast, (SETTINGS["programs"], fast.shape[1]))
    assert np.array_equal(learner.seconds(choices, some), choices.graph.latencies(choices.rows(some))), "by the model"


def test_a_task_without_recorded_programs_is_ranked_by_predictions_alone(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its demonstrations are the model's; the time of a program is the mean of the predictions, plus their deviation."""
    op = operators.depthwise_conv2d(n=1, c=16, h=12, w=12, r=3, s=3)
    graphs = tasks(MACHINE, "extended", [op])
    assert [str(graph.operator) for graph in graphs[2:]] == [str(op)] and graphs[2].hardware.digest == graphs[0].hardware.digest
    one, other = Ratio(2.0), Ratio(4.0)
    monkeypatch.setattr(timed, "load_correction", lambda folder: {"one": one, "other": other}[folder])
    learner = TimedColumnLearner({**SETTINGS, "measured": MACHINE, "corrections": ["one", "other"]}, graphs, 3200, 0)
    choices = next(choices for choices in learner.choices if choices.graph.operator == op)
    shown = learner.demonstrations(choices)
    assert len(shown) and np.array_equal(shown, demonstrated(choices))
    ratio = learner.seconds(choices, shown) / choices.graph.latencies(choices.rows(shown))
    assert ratio == pytest.approx(np.full(len(shown), np.sqrt(8.0) * np.exp(np.log(2.0) / 2)))


def test_a_network_sees_whether_weights_are_constant(table: Any) -> None:
    plain, frozen = (Choices(graph) for graph in sorted(tasks(MACHINE, "extended"), key=lambda graph: graph.operator.frozen))
    assert (plain.frozen, frozen.frozen) == ([0.0], [1.0])
    for sees in (True, False):
        network, chances = network_of({**SETTINGS, "frozen": sees}), []
        for plain.frozen in (np.zeros(1, np.float32), frozen.frozen):
            torch.manual_seed(0)
            chances.append(network(plain, np.full((1, len(plain.counts)), 0.5))[1].item())
        assert (chances[0] != chances[1]) == sees


def test_it_learns_the_programs_that_are_fast_by_their_times(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times that are the model's turned round: what the model calls slow becomes likely."""

    class Turned(Times):
        def seconds(self, chosen: np.ndarray) -> np.ndarray:
            latencies = self.choices.graph.latencies(self.choices.rows(chosen))
            return np.where(np.isfinite(latencies), 1e-9 / latencies, np.inf)

    monkeypatch.setattr(timed, "load_correction", lambda folder: Ratio(1.0))
    monkeypatch.setattr(timed, "Times", Turned)
    more = {"measured": MACHINE, "corrections": ["one"], "frozen": True, "demonstrations": 0, "programs": 32}
    learner = TimedColumnLearner({**SETTINGS, **more}, tasks(MACHINE, "extended")[:1], 3200, 0)
    first = np.mean([learner.advance() for _ in range(5)])
    while learner.num_timesteps < 3200:
        last = learner.advance()
    assert last > first + 0.5
