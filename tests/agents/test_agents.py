"""Strategies on the smallest graphs there are, and the front door's refusals."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gensor_gym
from agents import STRATEGIES, get_strategy, optimize
from agents.gensor.markov import Markov, MarkovExtended
from agents.policies.card import read_card
from agents.policies.learned import POLICIES
from agents.policies.training_tasks import is_current
from agents.roller.roller import Roller
from gensor_gym import codegen, operators
from gensor_gym.codegen import build
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.session import Budget, BudgetSpent, Session, Task
from tests.support.thorough import thorough_but

SHIPPED = sorted(folder.name for folder in POLICIES.iterdir())
SMALLEST = ["gemm(m=1, n=1, k=1)", "gemv(m=1, k=2)", 'elementwise("relu", 1)', "conv2d(1, 1, 1, 1, 1, 1, 1)"]


@pytest.mark.parametrize("strategy", [Markov(), MarkovExtended()])
@pytest.mark.parametrize("operator", SMALLEST)
@pytest.mark.parametrize("machine", thorough_but(["h200", "cascade_lake"], "h200"))
def test_a_graph_with_fewer_programs_than_walkers(strategy: Markov, operator: str, machine: str) -> None:
    """Places for programs that no walk filled hold nothing: neither ranked nor walked from."""
    graph = ConstructionGraph(operator, machine, strategy.space)
    for seed in range(3):
        found = strategy.construct(graph, np.random.default_rng(seed))
        assert found.schedules and all(graph.is_legal(schedule) for schedule in found.schedules)
        assert np.allclose([graph.latency(s) for s in found.schedules], found.latencies)


@pytest.mark.parametrize("trials", [None, 0, -1, 1.5, "4"])
def test_trials_are_a_positive_number(trials: object) -> None:
    with pytest.raises(ValueError, match="trials"):
        optimize("gemm(m=4, n=4, k=4)", "h200", "random_walk", trials=trials, backend="analytic")


def test_why_nothing_ran_is_said() -> None:
    with pytest.raises(RuntimeError, match=r"COMPILE_ERROR.*tf32"):
        optimize('gemm(m=8, n=8, k=8, dtype="tf32")', "host", "random_walk", trials=1)


def test_what_is_no_operator_is_named() -> None:
    with pytest.raises(ValueError, match="operator 3"):
        optimize(3, "h200", "random_walk", trials=1, backend="analytic")


SEARCHES = ["markov", "markov_ext", "roller", "random_walk", "local_search", "exhaustive"]
OPERATORS = ["gemm(m=200, n=136, k=96)", "avg_pool2d(n=2, c=8, h=20, w=20, r=3, s=3, stride=2, padding=1)"]


@pytest.mark.parametrize("name", thorough_but(SEARCHES, "markov", "random_walk", "local_search"))
def test_a_seed_decides_the_search(name: str) -> None:
    traces = [optimize(OPERATORS[0], "h200", name, trials=4, seed=s, backend="analytic").trace for s in (5, 5)]
    assert [(row.schedule, row.seconds) for row in traces[0]] == [(row.schedule, row.seconds) for row in traces[1]]


@pytest.mark.parametrize("name", thorough_but(SEARCHES, "markov", "exhaustive"))
@pytest.mark.parametrize("operator", OPERATORS)
def test_budgets_hold_and_the_best_is_kept(name: str, operator: str) -> None:
    result = optimize(operator, "h200", name, trials=5, backend="analytic")
    assert 1 <= len(result.trace) <= 5
    assert result.seconds == min(row.seconds for row in result.trace)
    assert len({row.schedule for row in result.trace}) == len(result.trace)


def test_model_evaluations_are_charged() -> None:
    session = Session(Task.of(OPERATORS[0], "h200", "analytic", "gensor"), Budget(evaluations=1000))
    with pytest.raises(BudgetSpent, match="1000"):
        Markov().search(session, np.random.default_rng(0))
    assert session.trials == 0


def test_exhaustive_measures_the_whole_compact_space_and_finds_its_optimum() -> None:
    graph = ConstructionGraph(OPERATORS[0], "h200", "compact")
    seconds = np.concatenate([graph.latencies(rows) for rows in graph.enumerate()])
    result = optimize(OPERATORS[0], "h200", "exhaustive", trials=3, backend="analytic")
    assert result.seconds == seconds.min()


def test_descent_on_the_model_finds_its_optimum_and_ends() -> None:
    whole = optimize("gemm(m=64, n=96, k=64)", "h100", "exhaustive", trials=2000, backend="analytic")
    found = optimize("gemm(m=64, n=96, k=64)", "h100", "model_descent", trials=2000, backend="analytic", space="compact")
    assert found.seconds == whole.seconds == min(row.seconds for row in found.trace[:3])
    assert 12 <= len(found.trace) < len(whole.trace), "it ends where another round brings nothing new"


def test_roller_has_virtual_threads_where_the_space_has_them() -> None:
    for space, has in (("tree", True), ("compact", False)):
        graph = ConstructionGraph("gemm(m=1024, n=1024, k=1024)", "h100", space)
        schedules = Roller().construct(graph, np.random.default_rng(0)).schedules
        assert all(graph.is_legal(schedule) for schedule in schedules)
        assert any((schedule.vthread > 1).any() for schedule in schedules) == has


@pytest.mark.parametrize("name", ["roller/C0", "roller/D5", "roller/M1", "roller/P6", "roller/R3", "roller/E19"])
def test_the_traverser_is_never_behind_roller(name: str) -> None:
    op, rng = operators.resolve(name)[0], np.random.default_rng(3)
    roller = Roller().construct(ConstructionGraph(op, "h200", "tree"), rng)
    markov = Markov().construct(ConstructionGraph(op, "h200", "gensor"), rng)
    assert markov.latencies[0] <= min(roller.latencies) * (1 + 1e-9)
    assert roller.visited < markov.visited


@pytest.mark.parametrize("machine", thorough_but(["h200", "cascade_lake"], "h200"))
def test_the_shipped_policy_proposes_good_programs(machine: str) -> None:
    from agents.policies.ppo import Ppo

    graph = ConstructionGraph("gemm(m=128, n=3072, k=768)", machine, "extended")
    found = Ppo(episodes=16).construct(graph, np.random.default_rng(0))
    walks = [graph.latency(graph.random_schedule(np.random.default_rng(seed))) for seed in range(32)]
    assert all(graph.is_legal(schedule) for schedule in found.schedules)
    assert found.latencies[0] < 0.75 * min(walks)
    assert Ppo().training_seconds(graph) > 0


def test_the_kernel_of_a_result_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is generated when it is first asked for, and hashed once, however often it is called."""
    built: list[Kernel] = []
    monkeypatch.setattr(codegen, "build", lambda *task: built.append(build(*task)) or built[-1])
    hashed: list[int] = []
    monkeypatch.setattr(Kernel, "digest", counted(Kernel.__dict__["digest"], hashed))
    result = optimize("gemv(m=8, k=4)", "host", "random_walk", trials=1)
    hashed.clear()
    a, x = np.ones((8, 4), np.float32), np.ones(4, np.float32)
    for _ in range(3):
        assert np.array_equal(result.kernel(a, x), np.full(8, 4, np.float32))
    assert result.kernel is built[0] and len(built) == 1 and len(hashed) == 1


def counted(digest: cached_property[str], times: list[int]) -> cached_property[str]:
    """The property, which notes every time that it is worked out."""
    again: cached_property[str] = cached_property(lambda kernel: times.append(1) or digest.func(kernel))
    again.__set_name__(Kernel, "digest")
    return again


@pytest.mark.parametrize("name", thorough_but(SHIPPED, "columns_gpu"))
def test_every_shipped_policy_constructs(name: str) -> None:
    """Under the present version of what its agent sees and the present layout."""
    pytest.importorskip("sb3_contrib")
    card = read_card(POLICIES / name)
    env = card["config"]["env"]
    agent = card["agent"] if card["agent"] in STRATEGIES else "ppo"
    strategy: Any = get_strategy(agent, checkpoint=str(POLICIES / name), space=env["space"], episodes=4)
    graph = ConstructionGraph("gemm(m=96, n=80, k=64)", env["hardware"], env["space"])
    found = strategy.construct(graph, np.random.default_rng(0))
    assert found.schedules and found.latencies[0] < graph.latency(graph.initial())


@pytest.mark.parametrize("name", thorough_but(SHIPPED, "ppo_gpu"))
def test_every_shipped_policy_is_of_the_present_tasks(name: str) -> None:
    """Their fingerprints are those it was trained on; a task takes a third of a second."""
    assert is_current(read_card(POLICIES / name))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"strategy": 3}, "strategy 3: expected a name, or an object"),
        ({"seed": -1}, "seed -1: expected a whole number, 0 or more"),
        ({"seed": "x"}, "seed 'x': expected a whole number"),
        ({"strategy": "markov", "walkers": "x"}, "walkers of strategy 'markov' is 'x'; expected a whole number, such as"),
        ({"strategy": "beam", "width": 1e9}, "width of strategy 'beam' is 1000000000.0; expected a whole number"),
        ({"strategy": "ppo", "checkpoint": 3}, "checkpoint of strategy 'ppo' is 3; expected text"),
    ],
)
def test_what_is_no_strategy_seed_or_number_is_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        optimize("gemm(m=8, n=8, k=8)", **{"hardware": "h200", "backend": "analytic", "trials": 1, **wrong})


def test_a_missing_policy_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="experiments train"):
        optimize(OPERATORS[0], "h200", "ppo", trials=1, backend="analytic", checkpoint="/nowhere/at/all")


@pytest.mark.parametrize("given, message", [("half", "no card.json in .*half: expected"), ("half/policy.zip", "is a file")])
def test_what_is_no_folder_of_a_policy_is_named(given: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "half").mkdir()
    for name in ("policy.safetensors", "policy.zip"):
        (tmp_path / "half" / name).write_bytes(b"")
    for strategy in ("ppo", "columns"):
        with pytest.raises((ValueError, FileNotFoundError), match=f"{message}.*policy.safetensors and card.json"):
            optimize(OPERATORS[0], "h200", strategy, trials=1, backend="analytic", checkpoint=str(tmp_path / given))


def test_a_result_is_a_line() -> None:
    result = optimize("gemm(m=64, n=64, k=64)", "h200", "random_walk", trials=3, backend="analytic")
    speed = f"{result.seconds * 1e6:.4g} us, {2 * 64**3 / result.seconds / 1e9:.4g} GFLOP/s"
    assert str(result) == repr(result) == f"<Result of gemm(m=64, n=64, k=64) on h200: {speed}, 3 trials>"


def test_every_front_door_takes_an_operator_its_text_or_an_id() -> None:
    op = operators.resolve("smoke/gemm")[0]
    for given in (op, str(op), "smoke/gemm"):
        graph = gensor_gym.ConstructionGraph(given, "h200")
        schedule = graph.initial()
        assert graph.operator == gensor_gym.build(given, schedule, "h200").operator == op
        assert gensor_gym.measure(given, schedule, "h200", "analytic").seconds == graph.latency(schedule)
        assert optimize(given, "h200", trials=1, backend="analytic").task.operator == op
    for call in (
        lambda: gensor_gym.ConstructionGraph("smoke", "h200"),
        lambda: gensor_gym.build("smoke", schedule, "h200"),
        lambda: gensor_gym.measure("smoke", schedule, "h200", "analytic"),
        lambda: optimize("smoke", "h200", backend="analytic"),
    ):
        with pytest.raises(ValueError, match="'smoke' stands for 9 operators: expected one"):
            call()
