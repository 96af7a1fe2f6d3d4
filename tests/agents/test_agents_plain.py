"""The plain strategies that papers compare with: rules that all of them keep, and that they search."""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest

from agents import optimize
from agents.baselines.annealing import accepts
from agents.baselines.q_network import QNetwork, Transition
from agents.core.ledger import Ledger
from agents.core.programs import Programs
from agents.core.significance import is_faster
from agents.optimizer import run
from agents.strategy import get_strategy
from experiments.common.statistics import expected_best
from gensor_gym import hardware
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.records.backend import open_recorded
from gensor_gym.measure.session import Budget, BudgetSpent, Session, Task
from tests.support.thorough import thorough_but

MEASURING = ["random", "annealing", "genetic", "droplet", "tpe", "flextensor"]
"""Ask no model; go on until the space is exhausted."""
BY_MODEL = ["greedy", "beam", "mcts"]
RULES = ["welder"]
ALL = MEASURING + BY_MODEL + RULES
MACHINE = hardware.get("zen5_1c")
GEMM = "gemm(m=256, n=128, k=128)"
TABLES = [GEMM, "batched_gemm(b=4, m=64, n=64, k=64)", "reduce_sum(m=2048, k=768)"]


def search(name: str, operator: str, trials: int | None, seed: int = 0, **of: object) -> Session:
    """A search of a recorded table."""
    session = Session(Task.of(operator, MACHINE, "recorded", "compact"), Budget(trials=trials))
    run(get_strategy(name, space="compact", **of), session, seed)
    return session


@cache
def regrets(operator: str) -> np.ndarray:
    """Of all programs of a table."""
    recorded, graph = open_recorded("recorded", MACHINE), ConstructionGraph(operator, MACHINE, "compact")
    return np.array([recorded.regret(graph, graph.schedule(row)) for rows in graph.enumerate() for row in rows])


def regret(session: Session) -> float:
    """Of the best found."""
    assert session.best is not None
    found = open_recorded("recorded", MACHINE).regret(session.graph, session.best[0])
    assert found is not None
    return found


@pytest.mark.parametrize("name", ALL)
def test_a_seed_decides_the_search_and_the_budget_holds(name: str) -> None:
    one, same = (search(name, GEMM, 20, seed=3) for _ in range(2))
    assert [row.schedule for row in one.trace] == [row.schedule for row in same.trace]
    assert 1 <= one.trials <= 20
    if name in MEASURING:
        assert one.trials == 20
        assert [row.schedule for row in search(name, GEMM, 20, seed=4).trace] != [row.schedule for row in one.trace]


@pytest.mark.parametrize("name", ALL)
def test_the_model_is_asked_by_those_that_have_one_and_is_charged(name: str) -> None:
    asked = search(name, GEMM, 10).evaluations
    assert (asked > 10) == (name in BY_MODEL) and (asked == 0) == (name not in BY_MODEL)
    session = Session(Task.of(GEMM, "h200", "analytic", "extended"), Budget(evaluations=5))
    if name in BY_MODEL:
        with pytest.raises(BudgetSpent, match="evaluations"):
            get_strategy(name).search(session, np.random.default_rng(0))


@pytest.mark.parametrize("name", ALL)
def test_a_small_space_is_exhausted_and_the_search_ends(name: str) -> None:
    """34 schedules; those that measure try them all, without a limit on trials."""
    operator = 'elementwise(name="exp", shape=(192, 128, 128))'
    session = search(name, operator, None)
    assert len({row.schedule for row in session.trace}) == session.trials
    assert session.trials == 34 if name in MEASURING else 1 <= session.trials <= 34


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("operator", ["gemm(m=1, n=1, k=1)", "gemv(m=1, k=2)"])
@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
def test_a_graph_of_next_to_nothing(name: str, operator: str, machine: str) -> None:
    result = optimize(operator, machine, name, trials=3, backend="analytic")
    assert 1 <= len(result.trace) <= 3 and math.isfinite(result.seconds)


@pytest.mark.parametrize("name", thorough_but(ALL, *(name for name in ALL if name not in ("mcts", "welder"))))
@pytest.mark.parametrize(
    ("machine", "space"),
    thorough_but(product(("h200", "cascade_lake"), ("extended", "gensor")), ("cascade_lake", "extended")),
)
def test_every_space_and_kind_of_machine(name: str, space: str, machine: str) -> None:
    """Legal, different programs within the budget, better than where construction begins."""
    operator = "conv2d(n=1, c=16, h=14, w=14, k=32, r=3, s=3, padding=1)"
    result = optimize(operator, machine, name, trials=12, backend="analytic", space=space)
    assert 1 <= len(result.trace) <= 12 and all(row.status == "OK" for row in result.trace)
    graph = ConstructionGraph(operator, machine, space)
    assert result.seconds < graph.latency(graph.initial())


@pytest.mark.parametrize(
    "name",
    thorough_but(ALL[1:], *(name for name in ALL[1:] if name in ("droplet", "random"))),
)
def test_searches_beat_the_mean_random_draw(name: str) -> None:
    """After 48 trials, three tables, three seeds: less than half the regret that as many uniform draws are expected to have."""
    found = np.mean([regret(search(name, operator, 48, seed)) for operator in TABLES for seed in range(3)])
    assert found < 0.5 * np.mean([expected_best(regrets(operator))[47] for operator in TABLES])


def test_the_expected_best_is_the_mean_over_all_draws() -> None:
    values = np.array([3.0, 0.0, 7.0, 1.0, 1.0])
    for k, expected in enumerate(expected_best(values), start=1):
        assert expected == pytest.approx(np.mean([min(some) for some in combinations(values, k)]))
    assert expected_best(np.array([math.inf, 2.0])).tolist() == [math.inf, 2.0]
    for wrong in ([], [[1.0]], [math.nan]):
        with pytest.raises(ValueError, match="values"):
            expected_best(np.array(wrong))


@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
def test_vectors_are_the_programs_of_the_space(machine: str) -> None:
    graph = ConstructionGraph("gemm(m=64, n=32, k=48)", machine, "extended")
    programs, rng = Programs(graph), np.random.default_rng(0)
    for _ in range(20):
        schedule = programs.uniform(rng)
        vector = programs.vector(schedule)
        assert graph.is_legal(schedule) and vector is not None and programs.schedule(vector) == schedule
        assert programs.vector(graph.random_schedule(rng)) is not None
        column, place = programs.places[int(rng.integers(len(programs.places)))]
        moved = programs.moved(vector, (column, place, 1))
        if moved is not None:
            assert (moved != vector).sum() == 1
            assert programs.logs[column][moved[column], place] > programs.logs[column][vector[column], place]


def test_uniform_draws_are_uniform() -> None:
    """Of a small space every program comes about as often."""
    graph = ConstructionGraph("gemv(m=8, k=8)", "cascade_lake", "compact")
    programs, rng = Programs(graph), np.random.default_rng(1)
    rows = programs.listed()
    assert rows is not None and 10 < len(rows) < 200
    counts = dict.fromkeys((row.tobytes() for row in rows), 0)
    for _ in range(30 * len(rows)):
        counts[programs.uniform(rng).row.tobytes()] += 1
    chi_square = sum((count - 30) ** 2 / 30 for count in counts.values())
    assert chi_square < len(rows) + 5 * math.sqrt(2 * len(rows))


def test_a_ledger_draws_everything_once() -> None:
    session = Session(Task.of(TABLES[2], MACHINE, "recorded", "compact"), Budget())
    ledger, rng = Ledger(session), np.random.default_rng(0)
    walked = ledger.walked(rng, 7)
    assert len(set(walked)) == 7
    ledger.measure(walked)
    while drawn := ledger.fresh(rng, 50):
        assert not any(schedule in ledger for schedule in drawn)
        ledger.measure(drawn)
    rows = ledger.programs.listed()
    assert rows is not None and ledger.trials == len(rows)


def test_a_faster_kernel_is_told_from_noise() -> None:
    rng = np.random.default_rng(0)
    slow, same, fast = (tuple(mean + rng.standard_normal(15)) for mean in (100.0, 100.0, 97.0))
    assert is_faster(fast, slow, 0.05) and not is_faster(slow, fast, 0.05) and not is_faster(same, slow, 1e-3)
    assert is_faster((1.0,), (2.0,), 0.05) and not is_faster((2.0,), (2.0,), 0.05)
    assert is_faster((1.0, 1.0), (), 0.05) and not is_faster((), (1.0,), 0.05)


@pytest.mark.parametrize("level", [0.05, 0.2])
def test_alike_kernels_are_called_faster_at_half_the_level(level: float) -> None:
    """Two-sided: half of the errors call the first faster, half the second."""
    rng, draws = np.random.default_rng(0), 3000
    alarms = sum(is_faster(rng.normal(100.0, 1.0, 12).tolist(), rng.normal(100.0, 2.0, 9).tolist(), level) for _ in range(draws))
    assert alarms / draws == pytest.approx(level / 2, abs=3.5 * (level / 2 / draws) ** 0.5)


def test_metropolis_rule() -> None:
    assert accepts(2.0, 1.0, 0.1, 0.99) and accepts(math.inf, math.inf, 0.1, 0.5)
    assert not accepts(1.0, math.inf, 0.1, 0.0)
    assert accepts(1.0, math.e, 1.0, 0.36) and not accepts(1.0, math.e, 1.0, 0.37)


def test_a_network_learns_which_move_pays() -> None:
    rng = np.random.default_rng(0)
    network = QNetwork(2, 3, 16, 0.01, rng)
    assert not network.values(np.ones(2)).any()
    features = rng.random((200, 2))
    memory = [Transition(f, move, float(f[0] * (move - 1)), f) for f in features for move in range(3)]
    errors = [network.train([memory[i] for i in rng.integers(0, 600, 64)], 0.0) for _ in range(400)]
    assert np.mean(errors[-20:]) < 0.1 * np.mean(errors[:20])
    assert network.values(np.array([0.9, 0.5]))[0].argmax() == 2


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("genetic", {"elite": 16}), ("genetic", {"tournament": 0}), ("beam", {"width": 0}), ("welder", {"kept": 0})],
)
def test_hyperparameters_that_make_no_search_are_refused(name: str, wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected"):
        get_strategy(name, **wrong)
