"""Rules for operations of ATen that write to elements chosen by indices.

The generated kernels compare the index of each element with every index that is written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gensor_gym.dataflow.nodes import Gather, Slice
from gensor_gym.frontends.aten.choices import equal
from gensor_gym.frontends.aten.maps import floor
from gensor_gym.frontends.aten.moves import joined_parts
from gensor_gym.frontends.aten.places import among
from gensor_gym.frontends.aten.reductions import product
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import covers as _covers

MOST_COMPARED = 1 << 28
"""Largest number of comparisons between the indices of elements and the indices that are written."""
_IDENTITY = {"sum": 0.0, "prod": 1.0, "mean": 0.0, "amax": -math.inf, "amin": math.inf}
"""Reduction of the values written to one index -> its neutral element."""


@_covers("index_put.default")
def _index_put(b: Builder, x: str, places: Sequence[str | None], value: str | float, accumulate: bool = False) -> str:
    """Write values to elements of x: one number where a mask is set, or values at indices along neighbouring axes.

    `places` has one mask of the first axes; or it has for each axis its indices, or None for the whole axis. Of equal indices,
    the last value counts. With `accumulate`, all values are added.
    """
    first = places[0]
    if isinstance(first, str) and b.reads[first] == "bool":
        size = math.prod(b.shapes[value]) if isinstance(value, str) else 1
        if len(places) > 1 or size != 1 or accumulate:
            raise ValueError("an assignment where a mask says so: expected one number")
        mask = b.reshape(first, (*b.shapes[first], *[1] * (len(b.shapes[x]) - len(b.shapes[first]))))
        return b.map(of("where", mask, b.reshape(value, ()) if isinstance(value, str) else value, x), "assigned")
    shape, chosen = b.shapes[x], {axis: (one, b.shapes[x][axis]) for axis, one in enumerate(places) if one is not None}
    before, behind = min(chosen), max(chosen) + 1
    if len(chosen) < behind - before:
        raise ValueError("an assignment to places along axes that are apart: expected neighbouring ones")
    ids = among(b, chosen)
    name = b.constant("places", ids) if isinstance(ids, np.ndarray) else ids
    rows, number, written = math.prod(shape[before:behind]), math.prod(b.shapes[name]), len(b.shapes[name])
    extents = (*shape[:before], *b.shapes[name], *shape[behind:])
    values = b.repeat(value if isinstance(value, str) else b.constant("value", np.asarray(value)), extents)
    values = b.transpose(b.dense(values), _to_front(before, before + written, len(extents)))
    order = _to_front(before, behind, len(shape))
    turned = b.transpose(x, order)
    flat, values = b.reshape(b.dense(turned), (rows, -1)), b.reshape(b.dense(values), (number, -1))
    _check_count(rows * number * (b.shapes[values][1] if accumulate else 1))
    here = equal(b.constant("row", np.arange(rows).reshape(-1, 1)), b.reshape(name, (1, number)))
    if accumulate:
        met = b.reshape(b.map(here, "here"), (rows, number, 1))
        parts = b.map(of("where", met, b.reshape(values, (1, *b.shapes[values])), 0.0), "parts")
        made = b.call("add", flat, b.reshape(b.reduce(parts, "sum", [1]), b.shapes[flat]))
    else:
        last = b.reduce(b.map(of("where", here, b.constant("number", np.arange(number) + 1), 0.0), "order"), "max", [1])
        row = b.reshape(b.map(of("maximum", of("subtract", last, 1.0), 0.0), "row"), (rows,))
        made = b.map(of("where", last, b.add(Gather(values, row), "rows"), flat), "assigned")
    return b.transpose(b.reshape(made, b.shapes[turned]), np.argsort(order).tolist())


def _to_front(first: int, behind: int, rank: int) -> tuple[int, ...]:
    """Return the order of `rank` axes that moves the axes first .. behind - 1 to the front."""
    return (*range(first, behind), *range(first), *range(behind, rank))


def _check_count(count: int) -> None:
    if count > MOST_COMPARED:
        raise ValueError(f"{count} elements compared with places: expected at most {MOST_COMPARED}")


def _joined(b: Builder, x: str, axis: int, ids: str, source: str | float, how: str, include_self: bool = True) -> str:
    """Write values to elements of x at indices along an axis; `how` (`last` or a key of `_IDENTITY`) combines equal indices."""
    if not b.shapes[x]:
        flat = b.reshape(source, (1,)) if isinstance(source, str) else source
        return b.reshape(_joined(b, b.reshape(x, (1,)), 0, b.reshape(ids, (1,)), flat, how, include_self), ())
    shape, extents, axis = b.shapes[x], b.shapes[ids], axis % len(b.shapes[x])
    short = next((other for other, extent in enumerate(shape) if other != axis and extents[other] < extent), None)
    if short is not None:  # elements beyond the indices' extents stay unchanged
        first, rest = (b.add(Slice(x, short, *ends), "part") for ends in ((0, extents[short]), (extents[short], shape[short])))
        return joined_parts(b, [_joined(b, first, axis, ids, source, how, include_self), rest], short)
    _check_count(math.prod(shape) * extents[axis])
    order = [*(other for other in range(len(shape)) if other != axis), axis]

    def line(name: str, along: int) -> str:
        """Move the axis to the end, with a new axis of extent 1 after it (`along` 1) or before it (`along` 0)."""
        turned = b.transpose(name, order)
        *outer, last = b.shapes[turned]
        return b.reshape(turned, (*outer, last, 1) if along else (*outer, 1, last))

    own, number = line(x, 1), extents[axis]
    given = line(_first(b, source, extents), 0) if isinstance(source, str) else source
    here = equal(b.constant("place", np.arange(shape[axis]).reshape(-1, 1)), line(ids, 0))
    if how == "last":
        numbers = b.constant("number", np.arange(number) + 1)
        last = b.reduce(b.map(of("where", here, numbers, 0.0), "order"), "max", [-1])
        part = b.map(of("where", equal(last, numbers), given, 0.0), "part")
        made = b.map(of("where", last, b.reduce(part, "sum", [-1]), own), "scattered")
    else:
        made = b.map(of("where", here, given, _IDENTITY[how]), "parts")
        made = product(b, made, [-1]) if how == "prod" else b.reduce(made, {"amax": "max", "amin": "min"}.get(how, "sum"), [-1])
        count = b.reduce(b.map(here, "here"), "sum", [-1])
        if include_self:
            made = b.call({"amax": "maximum", "amin": "minimum", "prod": "multiply"}.get(how, "add"), made, own)
        if how == "mean":
            mean = of("divide", made, of("maximum", of("add", count, float(include_self)), 1.0))
            made = b.map(floor(mean) if b.is_whole else mean, "mean")
        if not include_self:
            made = b.map(of("where", count, made, own), "scattered")
    turned = b.reshape(made, b.shapes[made][:-1])
    return b.transpose(turned, np.argsort(order).tolist())


def _first(b: Builder, x: str, extents: Sequence[int]) -> str:
    """Take the part of x with the first `extents[i]` elements along every axis i."""
    for axis, extent in enumerate(extents):
        x = x if b.shapes[x][axis] == extent else b.add(Slice(x, axis, 0, extent), "first")
    return x


@_covers("scatter.src", "scatter.value")
def _scatter(b: Builder, x: str, axis: int, ids: str, source: str | float) -> str:
    return _joined(b, x, axis, ids, source, "last")


@_covers("scatter_add.default")
def _scatter_add(b: Builder, x: str, axis: int, ids: str, source: str) -> str:
    return _joined(b, x, axis, ids, source, "sum")


@_covers("scatter_reduce.two")
def _scatter_reduce(b: Builder, x: str, axis: int, ids: str, source: str, reduce: str, *, include_self: bool = True) -> str:
    if reduce not in _IDENTITY:
        raise ValueError(f"reduce {reduce!r} of what is written: expected {', '.join(_IDENTITY)}")
    return _joined(b, x, axis, ids, source, reduce, include_self)


@_covers("index_reduce.default")
def _index_reduce(b: Builder, x: str, axis: int, ids: str, source: str, reduce: str, *, include_self: bool = True) -> str:
    """Reduce values into elements of x at indices along one axis, which hold for all positions of the other axes."""
    extents = b.shapes[source]
    lines = [extent if other == axis % len(extents) else 1 for other, extent in enumerate(extents)]
    return _scatter_reduce(b, x, axis, b.repeat(b.reshape(ids, lines), extents), source, reduce, include_self=include_self)


@_covers("put.default")
def _put(b: Builder, x: str, ids: str, source: str, accumulate: bool = False) -> str:
    flat = [b.reshape(one, (-1,)) for one in (x, ids, source)]
    b.reads = {**b.reads, flat[1]: b.reads[ids]}
    return b.reshape(_index_put(b, flat[0], [flat[1]], flat[2], accumulate), b.shapes[x])
