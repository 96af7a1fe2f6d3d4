"""Similarity of operators' sizes: extents within a factor of two on every axis, in any order of the axes."""

from __future__ import annotations

from itertools import zip_longest

from gensor_gym.operators.types import Operator

FACTOR = 2
"""Two extents are similar if they differ by at most this factor."""


def near(one: Operator, other: Operator) -> bool:
    """Whether two operators of one class have similar extents, compared by axis name or in sorted order.

    A missing axis counts as extent 1. Of all ways to pair the extents of two operators, sorting minimises the largest ratio. So
    if the sorted extents are not similar, they are not similar in any permutation of the axes. Data type, epilogue, stride and
    padding do not matter.
    """
    return one.name == other.name and (_by_name(one, other) or _in_order(one, other))


def _by_name(one: Operator, other: Operator) -> bool:
    mine, theirs = ({axis.name: axis.extent for axis in op.axes} for op in (one, other))
    return all(_alike(mine.get(name, 1), theirs.get(name, 1)) for name in mine | theirs)


def _in_order(one: Operator, other: Operator) -> bool:
    pairs = zip_longest(*(sorted(op.extents, reverse=True) for op in (one, other)), fillvalue=1)
    return all(_alike(*pair) for pair in pairs)


def _alike(one: int, other: int) -> bool:
    return max(one, other) <= FACTOR * min(one, other)
