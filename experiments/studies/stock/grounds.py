"""The environments of stock learners: one list of operators, two kinds of actions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.shipped import certificates_of

if TYPE_CHECKING:
    from gensor_gym.env.sb3 import ConstructVecEnv

GROUNDS = {"primitives": "make_sb3", "writing": "make_writing_sb3"}
"""Name -> the maker in `gensor_gym.env.sb3`."""


@cache
def operators_of(
    trained: str, tested: str, most_values: int, most_tested: int | None, hardware: str, space: str
) -> tuple[tuple[str, ...], ...]:
    """(operators for training, operators for tests, those of `tested` that are left out), as text; for all kinds of actions.

    An operator is left out if a column has more than `most_values` values. A test operator is also left out if a column has more
    values than in training, or if it has no certified optimum.
    """
    known = {certificate.operator for certificate in certificates_of(hardware, space)}
    graphs = [ConstructionGraph(op, hardware, space) for op in operators.resolve(trained)]
    graphs = [graph for graph in graphs if max(len(c.values) for c in graph.coordinates.movable()) <= most_values]
    if not graphs:
        raise ValueError(f"operators {trained!r}: none has columns of at most {most_values} values")
    most, tried, left = _most_values(*graphs), list[str](), list[str]()
    for op in operators.resolve(tested):
        own = _most_values(ConstructionGraph(op, hardware, space))
        fits = all(count <= most.get(column, 0) for column, count in own.items())
        (tried if str(op) in known and fits else left).append(str(op))
    if not tried:
        raise ValueError(f"tested {tested!r}: none has a certified optimum on {hardware} in {space!r}, and columns that fit")
    count = len(tried) if most_tested is None else most_tested
    chosen = np.unique(np.linspace(0, len(tried) - 1, count).round().astype(int))
    return tuple(str(graph.operator) for graph in graphs), tuple(tried[i] for i in chosen), tuple(left)


def _most_values(*graphs: ConstructionGraph) -> dict[int, int]:
    """First place of a column in a row -> its most values in any of the graphs."""
    most: dict[int, int] = {}
    for graph in graphs:
        for column in graph.coordinates.movable():
            most[column.first] = max(most.get(column.first, 0), len(column.values))
    return most


def make(ground: str, count: int, ops: Sequence[str], hardware: str, space: str) -> ConstructVecEnv:
    """`count` environments on one thread; an episode is about any of the operators."""
    from gensor_gym.env import sb3

    maker = getattr(sb3, GROUNDS[ground])
    made: ConstructVecEnv = maker(count, operator=list(ops), hardware=hardware, space=space, threads=1)
    return made
