"""Descents, neighbours of certified optima and the proof itself as searches by the model."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from agents import get_strategy
from agents.core.programs import Programs
from agents.exact.nearest import Nearest
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.shipped import certificate_of, certificates_of
from gensor_gym.measure.session import Budget, BudgetSpent, Session, Task
from tests.support.thorough import thorough_but

UNSEEN = "depthwise_conv2d(n=1, c=32, h=112, w=112, r=3, s=3, padding=1)"


def graph_of(text: str, hardware: str = "h200") -> ConstructionGraph:
    return ConstructionGraph(text, hardware, "gensor")


def latencies(name: str, graph: ConstructionGraph, count: int) -> list[float]:
    strategy = get_strategy(name)
    rounds = strategy.constructions(graph, np.random.default_rng(0))  # type: ignore[attr-defined]
    return [found.latencies[0] for found in islice(rounds, count)]


@pytest.mark.thorough
def test_of_a_train_operator_the_nearest_optimum_is_its_own() -> None:
    known = next(c for c in certificates_of("h200", "gensor") if operators.part_of(operators.parse(c.operator)) == "train")
    graph = graph_of(known.operator)
    assert latencies("nearest", graph, 1) == [known.optimum] and graph.evaluations == 1


@pytest.mark.thorough
def test_neighbours_are_legal_different_and_never_of_the_test_part() -> None:
    graph = graph_of(UNSEEN)
    rows = np.stack(list(Nearest().carried(Programs(graph))))
    assert graph.fits(rows).all() and len(np.unique(rows, axis=0)) == len(rows) >= 10
    certificate = certificate_of(graph)
    assert certificate is not None, "the operator's own optimum ships, and is not looked at"
    assert latencies("nearest", graph, 1)[0] > certificate.optimum


def test_a_machine_without_optima_is_an_error() -> None:
    with pytest.raises(ValueError, match="no optimum of a train operator is known on a100"):
        latencies("nearest", graph_of(UNSEEN, "a100"), 1)


def test_machines_are_a_list_of_names_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"machines 'h200': expected names in a list, \[h200\]"):
        Nearest(machines="h200")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown hardware 'h2000'.*did you mean"):
        Nearest(machines=("h200", "h2000"))


@pytest.mark.parametrize("name", thorough_but(["descents", "nearest_descents"], "descents"))
def test_descents_end_where_no_column_gains(name: str) -> None:
    graph = graph_of(UNSEEN)
    programs = Programs(graph)
    for found in islice(get_strategy(name).constructions(graph, np.random.default_rng(1)), 3):  # type: ignore[attr-defined]
        assert programs.neighbours(found.schedules[0].row)[1].min() >= found.latencies[0]
    assert graph.evaluations > 100


@pytest.mark.thorough
def test_the_proof_ends_with_the_optimum_and_once() -> None:
    graph = graph_of(UNSEEN)
    certificate = certificate_of(graph)
    assert certificate is not None and latencies("certifier", graph, 2) == [certificate.optimum]


def test_descents_go_on_from_programs_of_a_policy() -> None:
    graph = graph_of(UNSEEN)
    written, *after = latencies("columns_descents", graph, 4)
    assert len(after) == 3 and min(after) <= written


NAMES = ["nearest", "nearest_descents", "descents", "columns_descents"]


@pytest.mark.thorough
@pytest.mark.parametrize("name", thorough_but(NAMES, "nearest_descents"))
def test_a_search_goes_on_to_the_next_neighbour_and_the_next_descent(name: str) -> None:
    """Each measures the best of one construction after another, in their order, not the first construction again."""
    task = Task.of("gemm(m=96, n=80, k=64)", "h200", "analytic", "gensor")
    session, strategy = Session(task, Budget(trials=4)), get_strategy(name)
    with pytest.raises(BudgetSpent):
        strategy.search(session, np.random.default_rng(0))
    found = strategy.constructions(session.graph, np.random.default_rng(0))
    wanted = dict.fromkeys(str(one.schedules[0]) for one in islice(found, 40))
    assert [row.schedule for row in session.trace] == list(wanted)[:4], name
