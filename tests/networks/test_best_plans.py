"""The cheapest plan: proved by dynamic programming and search, the same as by listing all plans, never dearer than a rule's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gensor_gym import hardware
from gensor_gym.dataflow.text import parse
from gensor_gym.networks.fusion import best, candidates
from gensor_gym.networks.fusion.best import _Covers, optimum, ranked
from gensor_gym.networks.fusion.candidates import Candidate, TooMany
from gensor_gym.networks.fusion.dependences import Dependences
from gensor_gym.networks.fusion.fine import fine
from gensor_gym.networks.fusion.prices import Prices, price, program_of
from gensor_gym.networks.fusion.rules import plan_of
from gensor_gym.networks.pieces import Piece
from gensor_gym.networks.plan import cut_all
from gensor_gym.networks.planning.drawn import drawn, network_of
from gensor_gym.networks.planning.graph import PlanGraph
from tests.support.every_plan import HashedPrices, every_plan, small
from tests.support.thorough import thorough_but

HW = hardware.get("cascade_lake")
CIRCLE = parse(
    "def f(x: float32[16, 16]):\n    a = x * 2.0\n    b = x * 3.0\n    c = a + b\n    d = b - a\n    return c, d"
)
"""Nodes a and d, and b and c, are each a legal piece, but c reads a and d reads b."""


def agrees(seed: int) -> bool:
    """Whether the optimum of a random network with random prices has the least seconds of all plans; up to 16 decisions."""
    network = small(seed)
    prices = HashedPrices(network, seed)
    found = optimum(network, HW, Dependences(network), prices)
    assert not found.plan.fault and prices.total(found.plan.pieces) == pytest.approx(found.seconds)
    return found.seconds == pytest.approx(min(seconds for seconds, _ in every_plan(network, prices)))


@pytest.mark.parametrize("part", thorough_but(range(5), 0))
def test_no_plan_of_all_is_cheaper_than_the_optimum(part: int) -> None:
    """Of forty random networks a part: listing all plans finds the same least seconds."""
    assert all(agrees(seed) for seed in range(40 * part, 40 * part + 40))


def dearer_bound(self: _Covers) -> dict[int, float]:
    """Not admissible: twice the least seconds."""
    return {covered: 2 * seconds for covered, seconds in COSTS(self).items()}


def fewer_states(self: _Covers, covered: int) -> Iterator[tuple[Candidate, int]]:
    """Only pieces whose nodes are next to each other in the graph's order."""
    for one, after in FOLLOWING(self, covered):
        if one.nodes.bit_length() - one.nodes.bit_count() == (one.nodes & -one.nodes).bit_length() - 1:
            yield one, after


def no_panels(found: dict[int, Candidate], some: int, piece: Piece, prices: Prices) -> None:
    if piece.anchor != "panel":
        KEEP(found, some, piece, prices)


COSTS, FOLLOWING, KEEP = _Covers._costs, _Covers.following, candidates.keep_cheaper


@pytest.mark.parametrize(
    ("owner", "name", "fault"),
    [
        (_Covers, "_costs", dearer_bound), (_Covers, "following", fewer_states), (candidates, "keep_cheaper", no_panels),
        (candidates, "blocks", lambda of: iter(())), (Dependences, "hull", lambda self, some: some | some << 1 & self.products),
    ],
)  # fmt: skip
def test_listing_all_plans_catches_a_fault(owner: Any, name: str, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted in the bound, the dynamic program, and the pieces; some network of forty shows it."""
    monkeypatch.setattr(owner, name, fault)
    assert not all(agrees(seed) for seed in range(40, 80))


def test_plans_come_in_the_order_of_their_seconds() -> None:
    """All plans of a random network whose sets of nodes have one anchor each, by rank and by listing."""
    network = small(3)
    prices = HashedPrices(network, 3)
    order = [found.seconds for found in ranked(network, HW, Dependences(network), prices)]
    listed = sorted(seconds for seconds, _ in every_plan(network, prices))
    assert order == pytest.approx(listed) and len(listed) > 10


def test_pieces_that_wait_in_a_circle_are_no_plan() -> None:
    """Two pairs of nodes would be cheapest, but each pair waits for the other."""
    network = network_of(CIRCLE)
    prices = HashedPrices(network, 0)
    cheap = {frozenset(pair): 0.1 for pair in (("a", "d"), ("b", "c"))}
    prices.of = lambda piece: cheap.get(frozenset(piece.nodes), 1.0 * len(piece.nodes))  # type: ignore[method-assign]
    of = Dependences(network)
    pairs = [of.bits(pair) for pair in cheap]
    assert all(of.hull(pair) == pair for pair in pairs) and not of.is_ordered(pairs) and of.is_ordered(pairs[:1])
    found = optimum(network, HW, of, prices)
    assert found.seconds == pytest.approx(2.1) == min(seconds for seconds, _ in every_plan(network, prices))


@pytest.mark.parametrize("name", ["attending(seed=2)", "normed(seed=29)"])
def test_the_optimum_is_reached_by_decisions_and_no_dearer_than_rules(name: str) -> None:
    network = network_of(drawn(name))  # type: ignore[arg-type]
    graph = PlanGraph(network, HW)
    assert graph.best is not None and price(graph.best.plan, HW) == pytest.approx(graph.best.seconds)
    for plan in (graph.best.plan, fine(network), cut_all(network)):
        state = graph.first
        for action in graph.towards(plan):
            state = graph.after(state, action)
        assert state.seconds == pytest.approx(price(plan, HW)) and state.seconds >= graph.best.seconds * (1 - 1e-9)
        assert {frozenset(part.piece.nodes) for part in state.parts} == {frozenset(piece.nodes) for piece in plan.pieces}


def test_random_decisions_end_at_legal_plans_of_their_price() -> None:
    graph, rng = PlanGraph(network_of(drawn("attending(seed=6)")), HW), np.random.default_rng(0)  # type: ignore[arg-type]
    for _ in range(8):
        row, count = np.zeros(1024, np.int32), 0
        while any((state := graph.state(row)).mask[1:]):
            row[count] = rng.choice(np.flatnonzero(state.mask)[1:])
            count += 1
            assert not graph.schedule(row).fault and graph.after(state, 0) is state
        assert price(graph.schedule(row), HW) == pytest.approx(graph.state(row).seconds)


def test_prices_are_those_of_programs_and_of_loops_of_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of(drawn("layered(seed=4)"))  # type: ignore[arg-type]
    plan = fine(network)
    prices = Prices(network, HW)
    for piece, step in zip(plan.pieces, plan.steps, strict=True):
        assert prices.of(piece) == program_of(step.computation, HW)[1] > 0
    shared = dataclasses.replace(plan, pieces=(plan.pieces[0], dataclasses.replace(plan.pieces[1], follows=4), *plan.pieces[2:]))
    with pytest.raises(ValueError, match="expected loops of one piece"):
        price(shared, HW)
    monkeypatch.setattr(candidates, "MOST_SETS", 3)
    with pytest.raises(TooMany, match="more than 3 sets of nodes"):
        optimum(network, HW)
    assert plan_of(network, "best", HW) == fine(network), "too large for a proof"
    monkeypatch.undo()
    monkeypatch.setattr(best, "SECONDS", 0.0)
    assert plan_of(network, "best", HW) == fine(network), "no time for a proof"


def test_a_search_that_is_too_long_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    network = small(3)
    for name in ("MOST_STATES", "MOST_TRIED"):
        with monkeypatch.context() as patched:
            patched.setattr(best, name, 1)
            with pytest.raises(TooMany, match="more than 1"):
                optimum(network, HW, Dependences(network), HashedPrices(network, 3))
