"""The choice of least costs (`networks.orders.cheapest`) beside an enumeration of all choices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gensor_gym.networks.orders import cheapest as module
from gensor_gym.networks.orders.cheapest import Cost, cheapest


def total(costs: list[Cost], values: tuple[int, ...]) -> float:
    """The sum of all costs if variables have these values."""
    return sum(float(table[tuple(values[name] for name in names)]) for names, table in costs)


def least(count: int, costs: list[Cost]) -> float:
    """The smallest sum of costs of all choices."""
    return min(total(costs, values) for values in itertools.product((0, 1), repeat=count))


def drawn(count: int, pairs: int, seed: int) -> list[Cost]:
    """Random costs of single variables, and of pairs; some pairs are drawn twice, and some costs forbid a value."""
    rng = np.random.default_rng(seed)
    single: list[Cost] = [((one,), rng.normal(size=2)) for one in range(count)]
    both = (sorted(rng.choice(count, 2, replace=False).tolist()) for _ in range(pairs))
    fixed: list[Cost] = [((0,), np.array([0.0, np.inf])), ((), np.array(1.0))]
    return [*single, *((tuple(pair), rng.normal(size=(2, 2))) for pair in both), *fixed]


@pytest.mark.parametrize("pairs", [0, 6, 12, 40])
def test_the_choice_is_the_best_of_all(pairs: int) -> None:
    for seed in range(20):
        costs = drawn(9, pairs, seed)
        values = tuple(cheapest(9, costs))
        assert values[0] == 0 and total(costs, values) == pytest.approx(least(9, costs))


def test_coupled_variables_are_chosen_together() -> None:
    """Both orders of a whole chain are better than a mixture, and no single variable gains alone."""
    costs: list[Cost] = [((one, one + 1), np.array([[1.0, 3.0], [3.0, 1.0]])) for one in range(40)]
    costs += [((one,), np.array([0.05, 0.0])) for one in range(41)]
    assert cheapest(41, costs) == [1] * 41
    assert cheapest(41, [*costs, ((20,), np.array([0.0, 3.0]))]) == [0] * 41


def test_equal_costs_choose_zero() -> None:
    assert cheapest(3, [((0, 1), np.zeros((2, 2)))]) == [0, 0, 0] and cheapest(0, []) == []


def test_variables_with_many_neighbours_are_decided_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice is then no worse than the same choice of few neighbours would be at random, and right if costs agree."""
    monkeypatch.setattr(module, "WIDEST", 2)
    for seed in range(10):
        costs = drawn(9, 40, seed)
        values = tuple(cheapest(9, costs))
        sums = sorted(total(costs, one) for one in itertools.product((0, 1), repeat=9))
        assert values[0] == 0 and total(costs, values) <= sums[len(sums) // 20]
    agreeing: list[Cost] = [(pair, np.array([[1.0, 2.0], [2.0, 0.0]])) for pair in itertools.combinations(range(8), 2)]
    assert cheapest(8, agreeing) == [1] * 8
