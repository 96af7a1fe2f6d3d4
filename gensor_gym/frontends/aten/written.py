"""Rules for operations of ATen that write to elements chosen by indices (`dataflow.nodes.Scatter`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gensor_gym.dataflow.expressions import Expression
from gensor_gym.dataflow.nodes import Broadcast, Gather, Reshape, Scatter, Slice
from gensor_gym.frontends.aten.choices import equal
from gensor_gym.frontends.aten.maps import floor
from gensor_gym.frontends.aten.places import among, within
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import covers as _covers

_IDENTITY = {"sum": 0.0, "prod": 1.0, "mean": 0.0, "amax": -math.inf, "amin": math.inf}
"""Reduction of the values written to one index -> its neutral element."""
_JOINED = {"amax": "maximum", "amin": "minimum", "prod": "multiply"}
"""Reduction -> function that joins its result to an element; sums are added."""


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
    made = _joined(b, flat, b.reshape(name, (number,)), values, "sum" if accumulate else "last")
    return b.transpose(b.reshape(made, b.shapes[turned]), np.argsort(order).tolist())


def _to_front(first: int, behind: int, rank: int) -> tuple[int, ...]:
    """Return the order of `rank` axes that moves the axes first .. behind - 1 to the front."""
    return (*range(first, behind), *range(first), *range(behind, rank))


def _joined(b: Builder, flat: str, ids: str, values: str | float, how: str, include_self: bool = True) -> str:
    """Write rows of values [n, w], or one number, to rows of `flat` [r, w] by ids [n]; `how` combines rows of equal ids.

    It is `last` or a key of `_IDENTITY`.
    """
    (rows, _), (number,) = b.shapes[flat], b.shapes[ids]
    if how == "last":
        last = b.add(Scatter(b.constant("number", np.arange(number) + 1.0), ids, rows, "max", 0.0), "last")
        row = b.map(of("maximum", of("subtract", last, 1.0), 0.0), "row")
        given: str | float = b.add(Gather(values, row), "rows") if isinstance(values, str) else values
        return b.map(of("where", b.reshape(last, (rows, 1)), given, flat), "assigned")
    values = b.dense(values if isinstance(values, str) else b.constant("value", np.full((number, b.shapes[flat][1]), values)))
    kind, own = {"amax": "max", "amin": "max", "prod": "prod"}.get(how, "sum"), -math.inf if how == "amin" else _IDENTITY[how]
    made = b.add(Scatter(b.turned(values) if how == "amin" else values, ids, rows, kind, own), how)  # type: ignore[arg-type]
    made = b.turned(made) if how == "amin" else made
    if include_self and not (own == 0.0 and _is_zero(b, flat)):
        made = b.call(_JOINED.get(how, "add"), made, flat)
    if how != "mean" and include_self:
        return made
    count = b.add(Scatter(b.constant("one", np.ones(number)), ids, rows, "sum", 0.0), "count")
    count = b.reshape(count, (rows, 1))
    if how == "mean":
        mean: Expression = of("divide", made, of("maximum", of("add", count, float(include_self)), 1.0))
        made = b.map(floor(mean) if b.is_whole else mean, "mean")
    return made if include_self else b.map(of("where", count, made, flat), "scattered")


def _is_zero(b: Builder, x: str) -> bool:
    """Return whether all elements of a value are known to be 0."""
    while isinstance(node := b.made(x), Broadcast | Reshape):
        x = node.source
    return (array := b.known(x)) is not None and not array.any()


def _along(
    b: Builder, x: str, axis: int, ids: str, source: str | float, how: str, include_self: bool = True
) -> str:
    """Write values to elements of x at indices along an axis, with `how` and the other arguments of `_joined`.

    Axes along which indices are equal, such as the columns of a table whose rows are joined, stay the columns of a row; along the
    others, flat indices are computed. Indices outside the axis write nothing.
    """
    if not b.shapes[x]:
        flat = b.reshape(source, (1,)) if isinstance(source, str) else source
        return b.reshape(_along(b, b.reshape(x, (1,)), 0, b.reshape(ids, (1,)), flat, how, include_self), ())
    shape, extents, axis = b.shapes[x], b.shapes[ids], axis % len(b.shapes[x])
    lines = _lines(b, ids)
    rows = [one for one in range(len(shape)) if one == axis or b.shapes[lines][one] > 1 or extents[one] < shape[one]]
    order = [*rows, *(one for one in range(len(shape)) if one not in rows)]
    back, wide, count = np.argsort(order).tolist(), math.prod(shape[one] for one in rows), math.prod(extents[one] for one in rows)
    own = [extents[one] if one in rows else 1 for one in range(len(shape))]
    places = b.transpose(b.repeat(lines, own), order)
    steps = {one: math.prod(shape[other] for other in rows[at + 1 :]) for at, one in enumerate(rows)}
    if len(rows) > 1:
        others = [steps[one] * np.arange(extents[one] if one != axis else 1) for one in rows]
        beside = sum(np.ix_(*others)).reshape([*map(len, others), *[1] * (len(shape) - len(rows))])  # type: ignore[union-attr]
        place = of("add", of("multiply", places, float(steps[axis])), b.constant("beside", beside))
        places = within(b, places, shape[axis], place)
    turned = b.transpose(x, order)
    flat = b.reshape(b.dense(turned) if not _is_zero(b, turned) else turned, (wide, -1))
    if isinstance(source, str):
        for one, extent in enumerate(extents):
            source = source if b.shapes[source][one] == extent else b.add(Slice(source, one, 0, extent), "first")
        source = b.reshape(b.dense(b.transpose(source, order)), (count, -1))
    made = _joined(b, flat, b.reshape(b.dense(places) if len(rows) > 1 else places, (count,)), source, how, include_self)
    return b.transpose(b.reshape(made, b.shapes[turned]), back)


def _lines(b: Builder, ids: str) -> str:
    """Return the name of indices without the axes along which they are repeated, which have extent 1."""
    while isinstance(node := b.made(ids), Broadcast) and len(b.shapes[node.source]) == len(b.shapes[ids]):
        ids = node.source
    return ids


@_covers("scatter.src", "scatter.value")
def _scatter(b: Builder, x: str, axis: int, ids: str, source: str | float) -> str:
    return _along(b, x, axis, ids, source, "last")


@_covers("scatter_add.default")
def _scatter_add(b: Builder, x: str, axis: int, ids: str, source: str) -> str:
    return _along(b, x, axis, ids, source, "sum")


@_covers("scatter_reduce.two")
def _scatter_reduce(b: Builder, x: str, axis: int, ids: str, source: str, reduce: str, *, include_self: bool = True) -> str:
    if reduce not in _IDENTITY:
        raise ValueError(f"reduce {reduce!r} of what is written: expected {', '.join(_IDENTITY)}")
    return _along(b, x, axis, ids, source, reduce, include_self)


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


@_covers("_embedding_bag_forward_only.default", "_embedding_bag.default")
def _bag(
    b: Builder, table: str, ids: str, starts: str, by_frequency: bool = False, mode: int = 0, sparse: bool = False,
    weights: str | None = None, last: bool = False, padding: int = -1,
) -> tuple[str, ...]:  # fmt: skip
    """Compute the sums, means or maxima (`mode` 0, 1 or 2) of a table's rows over bags of row numbers `ids`; 0 for an empty bag.

    `starts` has the index of each bag's first id, with `last` also the end of the last bag. Ids equal to `padding` are left out.
    """
    (count,), (_, width), bags = b.shapes[ids], b.shapes[table], b.shapes[starts][0] - last
    rows = b.add(Gather(table, ids), "rows")
    if weights is not None:
        rows = b.call("multiply", rows, b.reshape(weights, (count, 1)))
    first, size = b.known(starts), count // bags
    ends = np.arange(0, count + 1, size)[: bags + last] if size else None
    if padding < 0 and first is not None and size * bags == count and ends is not None and np.array_equal(first, ends):
        own = b.reshape(rows, (bags, size, width))
        made = (b.reduce(own, "sum", [1]), b.mean(own, [1]), b.reduce(own, "max", [1]))[mode]
        return (b.reshape(made, (bags, width)),)
    begun = b.map(of("at_most", b.reshape(starts, (1, -1)), b.constant("place", np.arange(count).reshape(-1, 1))), "begun")
    bag: Expression = of("subtract", b.reshape(b.reduce(begun, "sum", [1]), (count,)), 1.0)
    bag = of("where", equal(ids, float(padding)), -1.0, bag) if padding >= 0 else bag
    none = b.constant("none", np.zeros((bags, width)))
    return (_joined(b, none, b.map(bag, "bag"), rows, ("sum", "mean", "amax")[mode], include_self=mode == 0),)
