"""Similarity of operators' sizes: within a factor of two on every axis, in any order of the axes."""

from __future__ import annotations

from itertools import zip_longest

from gensor_gym.operators.types import Operator

FACTOR = 2
"""Extents that differ by at most this factor are about the same."""


def near(one: Operator, other: Operator) -> bool:
    """Whether operators of one class are of about one size, axis by axis of the same name, or once both are in order.

    An axis that one of them does not have is one of extent 1. Of all ways to pair the extents of two operators the one in
    ascending order has the least greatest ratio, so no permutation of axes brings two together that are not near in order.
    Type, epilogue, stride and padding do not matter.
    """
    return one.name == other.name and (_by_name(one, other) or _in_order(one, other))


def _by_name(one: Operator, other: Operator) -> bool:
    """Whether axes of the same name are similar."""
    mine, theirs = ({axis.name: axis.extent for axis in op.axes} for op in (one, other))
    return all(_alike(mine.get(name, 1), theirs.get(name, 1)) for name in mine | theirs)


def _in_order(one: Operator, other: Operator) -> bool:
    """Whether the axes are similar in descending order of extent."""
    pairs = zip_longest(*(sorted(op.extents, reverse=True) for op in (one, other)), fillvalue=1)
    return all(_alike(*pair) for pair in pairs)


def _alike(one: int, other: int) -> bool:
    """Whether two extents are about the same."""
    return max(one, other) <= FACTOR * min(one, other)
