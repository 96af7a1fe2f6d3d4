"""The cheapest choice among two values for each of some variables, if each cost depends on few of them.

Variables are eliminated one by one (Bertele and Brioschi, Nonserial Dynamic Programming, 1972). For each choice of its
neighbours, a variable gets its best value, and the costs that contain the variable become one table of the neighbours. The choice
is exact unless some variable has more than `WIDEST` neighbours when it is eliminated.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

WIDEST = 14
"""Largest number of neighbours of an eliminated variable: their table then has 16,384 costs."""
Cost = tuple[tuple[int, ...], np.ndarray]
"""Ascending variables, and a table of costs with one axis of length 2 for each of them."""


def cheapest(count: int, costs: Iterable[Cost]) -> list[int]:
    """Return the values, 0 or 1, of `count` variables for which the sum of all costs is smallest; if costs are equal, 0."""
    left, chosen = list(costs), dict[int, int]()
    eliminated: list[tuple[int, tuple[int, ...], np.ndarray]] = []
    waiting = set(range(count))
    while waiting:
        scopes = {one: {one} for one in waiting}
        for names, _ in left:
            for one in names:
                scopes[one].update(names)
        one = min(waiting, key=lambda name: (len(scopes[name]), name))
        if len(scopes[one]) > WIDEST + 1:  # decided alone, as if others then had their best values for it
            one = max(waiting, key=lambda name: (len(scopes[name]), -name))
            chosen[one] = int(_best(left, one).argmin())
            left = [_given(cost, one, chosen[one]) for cost in left]
        else:
            scope = tuple(sorted(scopes[one]))
            mine, left = [cost for cost in left if one in cost[0]], [cost for cost in left if one not in cost[0]]
            table = sum((_over(scope, cost) for cost in mine), np.zeros((2,) * len(scope)))
            axis = scope.index(one)
            others = tuple(name for name in scope if name != one)
            eliminated.append((one, others, table.argmin(axis)))
            left.append((others, table.min(axis)))
        waiting.remove(one)
    for one, others, best in reversed(eliminated):
        chosen[one] = int(best[tuple(chosen[name] for name in others)])
    return [chosen[name] for name in range(count)]


def _over(scope: tuple[int, ...], cost: Cost) -> np.ndarray:
    """Return a table of costs with an axis for each variable of `scope`, of length 1 if the costs do not depend on it."""
    names, table = cost
    return table.reshape([2 if name in names else 1 for name in scope])


def _best(costs: Iterable[Cost], one: int) -> np.ndarray:
    """Return for both values of a variable the sum, float64 [2], of its costs, each with the best values of other variables."""
    of_one = ((names.index(one), table) for names, table in costs if one in names)
    return np.sum([np.moveaxis(table, axis, 0).reshape(2, -1).min(1) for axis, table in of_one], axis=0)


def _given(cost: Cost, one: int, value: int) -> Cost:
    """Return the costs that remain when a variable has a value."""
    names, table = cost
    if one not in names:
        return cost
    return tuple(name for name in names if name != one), table.take(value, names.index(one))
