"""The environments that stock learners learn in and are tried in: one list of operators, three kinds of actions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.columns.places import Places
from gensor_gym.exact.shipped import certificates_of

if TYPE_CHECKING:
    from gensor_gym.env.sb3 import ConstructVecEnv

GROUNDS: dict[str, tuple[str, dict[str, Any]]] = {
    "primitives": ("make_sb3", {}),
    "columns": ("make_sb3", {"moves": "columns"}),
    "writing": ("make_writing_sb3", {}),
}
"""Name -> (what of `gensor_gym.env.sb3` makes such environments, its arguments)."""


@cache
def operators_of(
    trained: str, tested: str, most_values: int, most_tested: int | None, hardware: str, space: str
) -> tuple[tuple[str, ...], ...]:
    """(operators to learn on, operators that are tried, those of `tested` that are left out), as text.

    One list for all kinds of actions: what has a column of more than `most_values` values is left out, of what is tried also what
    has more values of a column than all that is learned on, and what has no certified optimum.
    """
    known = {certificate.operator for certificate in certificates_of(hardware, space)}
    graphs = [ConstructionGraph(op, hardware, space) for op in operators.resolve(trained)]
    graphs = [graph for graph in graphs if max(len(c.values) for c in graph.coordinates.movable()) <= most_values]
    if not graphs:
        raise ValueError(f"operators {trained!r}: none has columns of at most {most_values} values")
    places, tried, left = Places(graphs), list[str](), list[str]()
    for op in operators.resolve(tested):
        (tried if str(op) in known and _fits(places, ConstructionGraph(op, hardware, space)) else left).append(str(op))
    if not tried:
        raise ValueError(f"tested {tested!r}: none has a certified optimum on {hardware} in {space!r}, and columns that fit")
    count = len(tried) if most_tested is None else most_tested
    chosen = np.unique(np.linspace(0, len(tried) - 1, count).round().astype(int))
    return tuple(str(graph.operator) for graph in graphs), tuple(tried[i] for i in chosen), tuple(left)


def _fits(places: Places, graph: ConstructionGraph) -> bool:
    """Whether there is an action for every value of every column."""
    try:
        places.check(graph)
    except ValueError:
        return False
    return True


def make(ground: str, count: int, ops: Sequence[str], hardware: str, space: str) -> ConstructVecEnv:
    """`count` environments on one thread; an episode is about any of the operators."""
    from gensor_gym.env import sb3

    maker, arguments = GROUNDS[ground]
    made: ConstructVecEnv = getattr(sb3, maker)(count, operator=list(ops), hardware=hardware, space=space, threads=1, **arguments)
    return made
