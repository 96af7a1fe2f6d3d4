"""Rules for operations of ATen that select elements by indices: rows of tables, elements along axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gensor_gym.dataflow.bounds import MOST_WHOLE
from gensor_gym.dataflow.expressions import Expression
from gensor_gym.dataflow.nodes import Gather
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import covers as _covers

Places = str | np.ndarray
"""Indices that an operation reads or writes: the name of a value, or constant numbers."""
MOST_PLACES = 8
"""Largest number of elements that `topk` selects along an axis, because each takes a pass over all elements."""


@_covers("embedding.default")
def _embedding(b: Builder, table: str, ids: str, *_: Any) -> str:
    return b.add(Gather(table, ids), "rows")


def take(b: Builder, x: str, axes: Sequence[int], ids: Places) -> str:
    """Take the elements of x at flat indices `ids` over some of its axes. Return the result's name.

    The axes of `ids` replace these axes, or come first if they are not adjacent.
    """
    shape, axes = b.shapes[x], [axis % len(b.shapes[x]) for axis in axes]
    name = b.constant("places", ids) if isinstance(ids, np.ndarray) else ids
    others = [axis for axis in range(len(shape)) if axis not in axes]
    front = b.reshape(b.dense(b.transpose(x, (*axes, *others))), (math.prod(shape[a] for a in axes), *(shape[a] for a in others)))
    made, wide = b.add(Gather(front, name), "taken"), len(b.shapes[name])
    before = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    return b.transpose(made, (*range(wide, wide + before), *range(wide), *range(wide + before, wide + len(others))))


def along(b: Builder, x: str, axis: int) -> tuple[str, Callable[[str], str]]:
    """Add a matrix whose row i has the elements of x at index i of an axis. Return (its name, function that undoes the change).

    The function restores the axes of x in a matrix with the same columns.
    """
    order = [axis, *(other for other in range(len(b.shapes[x])) if other != axis)]
    turned = b.transpose(x, order)
    extent, *others = b.shapes[turned]
    back = np.argsort(order).tolist()
    rows = b.reshape(b.dense(turned), (extent, math.prod(others)))
    return rows, lambda made: b.transpose(b.reshape(made, (b.shapes[made][0], *others)), back)


@_covers("unfold.default")
def _unfold(b: Builder, x: str, axis: int, size: int, step: int) -> str:
    axis, rank = axis % len(b.shapes[x]), len(b.shapes[x])
    places = np.arange(0, b.shapes[x][axis] - size + 1, step)[:, None] + np.arange(size)
    made = take(b, x, [axis], places)
    return b.transpose(made, (*(other for other in range(rank + 1) if other != axis + 1), axis + 1))


@_covers("index_select.default")
def _index_select(b: Builder, x: str, axis: int, ids: str) -> str:
    return take(b, x, [axis], ids)


@_covers("diagonal.default")
def _diagonal(b: Builder, x: str, offset: int = 0, one: int = 0, other: int = 1) -> str:
    shape = b.shapes[x]
    axes = [axis % len(shape) for axis in (one, other)]
    rows, columns = shape[axes[0]], shape[axes[1]]
    row, column = max(-offset, 0), max(offset, 0)
    if (count := min(rows - row, columns - column)) < 1:
        raise ValueError(f"a diagonal {offset} of {rows} x {columns}: expected one with elements")
    last = b.transpose(x, [*(axis for axis in range(len(shape)) if axis not in axes), *axes])
    return take(b, last, [len(shape) - 2, len(shape) - 1], (row + np.arange(count)) * columns + column + np.arange(count))


@_covers("index.Tensor")
def _index(b: Builder, x: str, places: list[str | float | None]) -> str:
    chosen = {axis: ids for axis, ids in enumerate(places) if ids is not None}
    if any(isinstance(ids, str) and b.reads[ids] == "bool" for ids in chosen.values()):
        raise ValueError("elements by a mask, of which there may be any number: expected places")
    return take(b, x, list(chosen), among(b, {axis: (ids, b.shapes[x][axis]) for axis, ids in chosen.items()}))


def among(b: Builder, chosen: Mapping[int, tuple[str | float, int]]) -> Places:
    """Combine indices along several axes to flat indices over these axes. `chosen` maps an axis to (its indices, its extent)."""
    made: Places | None = None
    every = [(_from_start(b, _known(b, ids), extent), extent) for ids, extent in chosen.values()]
    for ids, extent in every:
        made = _sum(b, None if made is None else _times(b, made, extent), ids)
    assert made is not None
    for ids, extent in every if len(every) > 1 else ():
        made = within(b, ids, extent, made) if isinstance(ids, str) and isinstance(made, str) else made
    return made


def within(b: Builder, ids: str, extent: int, places: Expression | str) -> str:
    """Replace flat indices `places` by -1, which is no element, where indices `ids` along one axis are outside of its extent.

    Otherwise they would stand for elements of other rows.
    """
    inside = of("where", of("less", ids, float(extent)), places, -1.0)
    return b.map(of("where", of("less", ids, 0.0), -1.0, inside), "within")


def _known(b: Builder, ids: str | float) -> Places:
    if not isinstance(ids, str):
        return np.asarray(ids)
    numbers = b.known(ids)
    return ids if numbers is None else numbers


def _from_start(b: Builder, ids: Places, extent: int) -> Places:
    """Add `extent` to indices below 0, which count from the end. Return all indices."""
    if isinstance(ids, str):
        return b.map(of("add", ids, of("multiply", extent, of("less", ids, 0.0))), "from_start")
    return np.where(ids < 0, ids + extent, ids)


def _times(b: Builder, ids: Places, factor: int) -> Places:
    return b.call("multiply", ids, factor) if isinstance(ids, str) else ids * factor


def _sum(b: Builder, one: Places | None, other: Places) -> Places:
    if one is None:
        return other
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.asarray(one + other)
    return b.call("add", *(ids if isinstance(ids, str) else b.constant("places", ids) for ids in (one, other)))


@_covers("gather.default")
def _gather(b: Builder, x: str, axis: int, ids: str, **_: Any) -> str:
    shape, extents, axis = b.shapes[x], b.shapes[ids], axis % len(b.shapes[x])
    steps = [math.prod(shape[other + 1 :]) for other in range(len(shape))]
    steps[axis], step = 0, steps[axis]
    lines = np.ix_(*(np.arange(extent) * one for extent, one in zip(extents, steps, strict=True)))
    known = _known(b, ids)
    made = _sum(b, _times(b, known, step), sum(lines, np.zeros(extents)))
    if isinstance(known, str) and isinstance(made, str) and math.prod(shape) > shape[axis]:
        made = within(b, known, shape[axis], made)
    return take(b, b.reshape(x, (-1,)), [0], made)


def places_along(b: Builder, x: str, axis: int) -> str:
    """Add a constant with the numbers 0, 1, .. along an axis of x, and extent 1 along other axes. Return its name.

    ValueError if float32 would not be exact.
    """
    rank, extent = len(b.shapes[x]), b.shapes[x][axis]
    if extent > MOST_WHOLE:
        raise ValueError(f"places along {extent} elements: expected at most {MOST_WHOLE:.0f}")
    return b.constant("places", np.arange(extent).reshape([-1 if other == axis else 1 for other in range(rank)]))


@_covers("flip.default")
def _flip(b: Builder, x: str, axes: list[int]) -> str:
    for axis in axes:
        x = take(b, x, [axis], np.arange(b.shapes[x][axis])[::-1])
    return x
