"""Axes of a value in two networks of one module, for a smaller and a larger size: how the smaller value is in the larger one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np


class NotRestricted(ValueError):
    """A network is not a part of another one. The text says why."""


@dataclass(frozen=True)
class Factor:
    """Part of an axis with extents in both networks. The smaller value has the first `small` of `big` indices."""

    small: int
    big: int
    pad: float | None = None
    """Number of the larger value at the other indices of this factor, if all other factors' indices are in the smaller one.

    None if it is unknown.
    """
    is_soft: bool = False
    """Whether `pad` may also be NaN, if all elements of the smaller value along this factor are (`padding.softmax_pad`)."""

    @property
    def is_dynamic(self) -> bool:
        """Whether the extents differ."""
        return self.small != self.big

    @property
    def extents(self) -> tuple[int, int]:
        """Both extents."""
        return self.small, self.big


Axis = tuple[Factor, ...] | None
"""Factors of an axis, the outermost first. None if all indices have the same element, so that any division serves."""
Axes = tuple[Axis, ...]


def plain(small: int, big: int, pad: float | None = None) -> tuple[Factor, ...]:
    """Return the factors of an axis on which the smaller value has the first indices."""
    return (Factor(small, big, pad),) if (small, big) != (1, 1) else ()


def extents(axis: Sequence[Factor]) -> tuple[int, int]:
    """Return the extents of an axis in both networks."""
    return math.prod(factor.small for factor in axis), math.prod(factor.big for factor in axis)


def without_pads(axis: Axis) -> Axis:
    """Return the axis without `pad`: numbers outside of the smaller value count as unknown."""
    return None if axis is None else tuple(replace(factor, pad=None, is_soft=False) for factor in axis)


def is_dynamic(axis: Axis) -> bool:
    """Return whether an axis has factors whose extents differ."""
    return axis is not None and any(factor.is_dynamic for factor in axis)


def unified(several: Sequence[Axis]) -> Axis:
    """Return the factors, without pads, of an axis of several values. NotRestricted if the values divide it differently."""
    known = {without_pads(merged(axis)) for axis in several if axis is not None}
    if len(known) > 1:
        raise NotRestricted("its operands divide an axis of changing size differently")
    return known.pop() if known else None


def merged(axis: tuple[Factor, ...]) -> tuple[Factor, ...]:
    """Return the axis with neighbouring factors of fixed extents multiplied."""
    found: list[Factor] = []
    for factor in axis:
        if found and not factor.is_dynamic and not found[-1].is_dynamic:
            found[-1] = Factor(found[-1].small * factor.small, found[-1].big * factor.big)
        else:
            found.append(factor)
    return tuple(found)


def regrouped(axes: Axes, small: Sequence[int], big: Sequence[int]) -> Axes:
    """Divide the factors of all axes among the axes of a reshape's result. NotRestricted if a changing factor is divided."""
    waiting = [factor for axis in axes for factor in (axis or ())]
    found: list[Axis] = []
    for wanted in zip(small, big, strict=True):
        made: list[Factor] = []
        while (done := extents(made)) != wanted:
            factor = waiting.pop(0) if waiting else None
            if factor is not None and not factor.is_dynamic:
                room = math.gcd(wanted[0] // done[0], wanted[1] // done[1])
                if factor.small > room and factor.small % room == 0 and room > 1:
                    waiting.insert(0, Factor(factor.small // room, factor.big // room))
                    factor = Factor(room, room)
            made += [factor] if factor is not None else []
            now = extents(made)
            if factor is None or now[0] > wanted[0] or now[1] > wanted[1] or now == done:
                raise NotRestricted(f"a reshape to {list(small)} divides an axis of changing size")
        found.append(tuple(made))
    if waiting:
        raise NotRestricted(f"a reshape to {list(small)} divides an axis of changing size")
    return tuple(found)


def valid(axis: Sequence[Factor]) -> np.ndarray:
    """Return which indices of the larger axis are in the smaller one, bool [larger extent]."""
    found = np.ones(1, bool)
    for factor in axis:
        found = np.logical_and.outer(found, np.arange(factor.big) < factor.small).reshape(-1)
    return found
