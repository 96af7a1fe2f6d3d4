"""Benefits of the traverser: the form of differences by hand, and that every move has its way back."""

from __future__ import annotations

import numpy as np
import pytest

from agents import get_strategy
from agents.gensor.benefits import LEAST, difference_score, occupied, traffic
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import ACTIONS, CACHE, TILE_UP


def test_the_difference_by_hand() -> None:
    """Register tile of gemm from 1x1x1 to 2x1x1: per point 8 bytes fall to 6, 3 registers grow to 5."""
    graph = ConstructionGraph("gemm(m=64, n=64, k=64)", "h200", "gensor")
    row, ints = graph.initial().row, graph.tables.ints
    action = next(i for i in range(TILE_UP, CACHE) if ACTIONS[i].axis == 3)
    after = graph.transition(graph.initial(), action).row
    assert (traffic(row, ints), traffic(after, ints)) == (8.0, 6.0)
    assert (occupied(row, ints), occupied(after, ints)) == (3.0, 5.0)
    assert difference_score(row, after, ints) == pytest.approx(0.25 / (2 / 3))


@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
@pytest.mark.parametrize("operator", ["gemm(m=60, n=64, k=36)", "conv2d(n=1, c=8, h=9, w=9, k=8, r=3, s=3)"])
def test_the_way_back_has_the_reciprocal_and_every_score_is_bounded(operator: str, machine: str) -> None:
    graph, rng = ConstructionGraph(operator, machine, "gensor"), np.random.default_rng(0)
    seen = set()
    for _ in range(60):
        schedule = graph.random_schedule(rng, steps=int(rng.integers(1, 30)))
        for action in np.flatnonzero(graph.action_mask(schedule)):
            if TILE_UP <= action < CACHE:
                after = graph.transition(schedule, int(action))
                score = difference_score(schedule.row, after.row, graph.tables.ints)
                assert LEAST <= score <= 1 / LEAST
                assert difference_score(after.row, schedule.row, graph.tables.ints) == pytest.approx(1 / score)
                seen.add(round(score, 6))
    assert len(seen) > 20


def test_the_form_changes_the_walk_and_others_are_refused() -> None:
    graph = ConstructionGraph("gemm(m=512, n=512, k=512)", "h200", "gensor")
    small = {"walkers": 4, "refiners": 0, "descents": 0, "steps": 40, "model": 0.0}
    ratio, difference = (
        get_strategy("markov", **small, form=form).construct(graph, np.random.default_rng(0)) for form in ("ratio", "difference")
    )
    assert list(ratio.latencies) != list(difference.latencies)
    with pytest.raises(ValueError, match="form 'quotient': expected one of ratio, difference"):
        get_strategy("markov", form="quotient")


@pytest.mark.parametrize(
    "bad", [{"walkers": 0}, {"steps": -1}, {"retain": 0}, {"refiners": -1}, {"model": -0.5}, {"final_temperature": 0.0}]
)
def test_values_out_of_range_are_named(bad: dict[str, float]) -> None:
    (name, value), *_ = bad.items()
    for strategy in ("markov", "markov_ext"):
        with pytest.raises(ValueError, match=f"{name} is {value}; expected"):
            get_strategy(strategy, **bad)
