"""Rules for operations of ATen that move data: reshapes, transposes, slices, joins, padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gensor_gym.dataflow.joins import is_leading
from gensor_gym.dataflow.nodes import Concat, Slice
from gensor_gym.frontends.aten.places import take
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import covers as _covers

MOST_PARTS = 16
"""Largest number of parts of equal extent into which the values of a join are split."""


@_covers("view.default", "reshape.default", "_unsafe_view.default")
def _view(b: Builder, x: str, to: Sequence[int]) -> str:
    return b.reshape(x, to)


@_covers("flatten.using_ints")
def _flatten(b: Builder, x: str, start: int = 0, end: int = -1) -> str:
    shape = b.shapes[x]
    first, last = start % len(shape), end % len(shape)
    return b.reshape(x, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


@_covers("unsqueeze.default")
def _unsqueeze(b: Builder, x: str, axis: int) -> str:
    shape = list(b.shapes[x])
    shape.insert(axis % (len(shape) + 1), 1)
    return b.reshape(x, shape)


@_covers("squeeze.dim", "squeeze.dims")
def _squeeze(b: Builder, x: str, axes: int | Sequence[int]) -> str:
    shape = b.shapes[x]
    gone = {axis % len(shape) for axis in ([axes] if isinstance(axes, int) else axes)}
    return b.reshape(x, [extent for axis, extent in enumerate(shape) if axis not in gone or extent != 1])


@_covers("permute.default")
def _permute(b: Builder, x: str, order: Sequence[int]) -> str:
    return b.transpose(x, order)


@_covers("transpose.int")
def _transpose(b: Builder, x: str, one: int, other: int) -> str:
    order = list(range(len(b.shapes[x])))
    order[one], order[other] = order[other], order[one]
    return b.transpose(x, order)


@_covers("t.default")
def _t(b: Builder, x: str) -> str:
    return b.transpose(x, range(len(b.shapes[x]))[::-1])


@_covers("expand.default")
def _expand(b: Builder, x: str, to: Sequence[int]) -> str:
    given = (1,) * (len(to) - len(b.shapes[x])) + b.shapes[x]
    return b.repeat(x, [old if new == -1 else new for old, new in zip(given, to, strict=True)])


@_covers("slice.Tensor")
def _slice(b: Builder, x: str, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1) -> str:
    axis %= len(b.shapes[x])
    first, last, _ = slice(start, stop).indices(b.shapes[x][axis])
    if first >= last:
        return b.constant("none", np.empty((*b.shapes[x][:axis], 0, *b.shapes[x][axis + 1 :])))
    if step != 1:
        return _stepped(b, x, axis, first, last, step)
    return x if (first, last) == (0, b.shapes[x][axis]) else b.add(Slice(x, axis, first, last), "slice")


def _stepped(b: Builder, x: str, axis: int, first: int, last: int, step: int) -> str:
    """Take every `step`-th element of an axis from `first` to `last`, as one element of each group of `step` neighbours.

    If the last group does not fit into the axis, the last element is sliced separately.
    """
    shape, count = b.shapes[x], -(-(last - first) // step)
    before = max(0, first + count * step - shape[axis])  # number of neighbours that the last element lacks
    if before > first:
        end = _slice(b, x, axis, first + (count - 1) * step, first + (count - 1) * step + 1)
        return joined_parts(b, [_stepped(b, x, axis, first, last - step, step), end], axis) if count > 1 else end
    groups = (*shape[:axis], count, step, *shape[axis + 1 :])
    grouped = b.reshape(_slice(b, x, axis, first - before, first - before + count * step), groups)
    return b.reshape(_slice(b, grouped, axis + 1, before, before + 1), (*shape[:axis], count, *shape[axis + 1 :]))


@_covers("select.int")
def select(b: Builder, x: str, axis: int, place: int) -> str:
    """Take the elements of x at index `place` of an axis, without that axis. Return the result's name."""
    axis, shape = axis % len(b.shapes[x]), b.shapes[x]
    place %= shape[axis]
    node = b.made(x)
    is_stack = isinstance(node, Concat) and node.axis == axis and len(node.sources) == shape[axis]
    part = node.sources[place] if is_stack else _slice(b, x, axis, place, place + 1)  # type: ignore[union-attr]
    return b.reshape(part, (*shape[:axis], *shape[axis + 1 :]))


@_covers("split.Tensor")
def split(b: Builder, x: str, size: int, axis: int = 0) -> tuple[str, ...]:
    """Slice x into parts of `size` elements along an axis. The last may be smaller. Return their names."""
    extent = b.shapes[x][axis]
    return tuple(_slice(b, x, axis, start, min(start + size, extent)) for start in range(0, extent, size))


@_covers("split_with_sizes.default")
def _split_with_sizes(b: Builder, x: str, sizes: Sequence[int], axis: int = 0) -> tuple[str, ...]:
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(_slice(b, x, axis, start, end) for start, end in zip(ends, ends[1:], strict=False))


@_covers("unbind.int")
def _unbind(b: Builder, x: str, axis: int = 0) -> tuple[str, ...]:
    return tuple(select(b, x, axis, place) for place in range(b.shapes[x][axis]))


@_covers("narrow.default")
def _narrow(b: Builder, x: str, axis: int, start: int, length: int) -> str:
    start %= b.shapes[x][axis] or 1
    return _slice(b, x, axis, start, start + length)


@_covers("chunk.default")
def _chunk(b: Builder, x: str, chunks: int, axis: int = 0) -> tuple[str, ...]:
    return split(b, x, -(-b.shapes[x][axis] // chunks), axis)


@_covers("cat.default")
def joined_parts(b: Builder, parts: Sequence[str], axis: int = 0) -> str:
    """Join values along an axis. Along a leading axis, whose parts are contiguous, this needs no kernel (`dataflow.joins`).

    Along other axes, values are split into parts of equal extent, because a kernel joins such parts in one loop. Values that
    cannot be split are joined two at a time, in a loop over all pairs of positions.
    """
    parts = [one for one in parts if math.prod(b.shapes[one])] or list(parts[:1])
    axis %= len(b.shapes[parts[0]])
    if not is_leading(b.shapes[parts[0]], axis):
        extents = [b.shapes[one][axis] for one in parts]
        size = math.gcd(*extents)
        is_slow = len(extents) > 2 or math.prod(extents) > 2 * sum(extents)  # two parts: a loop over all pairs of positions
        if is_slow and min(extents) > 1 and sum(extents) <= MOST_PARTS * size:
            parts = [part for one in parts for part in split(b, one, size, axis)]
        elif len(parts) > 2 and sum(extent > 1 for extent in extents) > 1:
            half = len(parts) // 2
            parts = [joined_parts(b, parts[:half], axis), joined_parts(b, parts[half:], axis)]
    return parts[0] if len(parts) == 1 else b.add(Concat(tuple(parts), axis), "cat")


@_covers("roll.default")
def _roll(b: Builder, x: str, shifts: Sequence[int], axes: Sequence[int] = ()) -> str:
    if not axes:
        shape = b.shapes[x]
        return b.reshape(_roll(b, b.reshape(x, (-1,)), shifts, [0]), shape)
    for shift, axis in zip(shifts, axes, strict=True):
        extent = b.shapes[x][axis]
        if shift % extent:
            x = joined_parts(b, [_slice(b, x, axis, -shift % extent, extent), _slice(b, x, axis, 0, -shift % extent)], axis)
    return x


@_covers("repeat.default")
def _repeat(b: Builder, x: str, counts: Sequence[int]) -> str:
    shape = (1,) * (len(counts) - len(b.shapes[x])) + b.shapes[x]
    spread = [extent for one in zip([1] * len(shape), shape, strict=True) for extent in one]
    wide = [extent for one in zip(counts, shape, strict=True) for extent in one]
    for axis in reversed(range(len(shape))):
        if counts[axis] == 1:
            del spread[2 * axis], wide[2 * axis]
    made = b.repeat(b.reshape(x, spread), wide)
    return b.reshape(made, [count * extent for count, extent in zip(counts, shape, strict=True)])


@_covers("copy.default")
def _copy(b: Builder, into: str, x: str | float, *_: Any) -> str | float:
    if not isinstance(x, str) and isinstance(into, str):
        return _full_like(b, into, x)
    return b.repeat(x, b.shapes[into]) if isinstance(into, str) and isinstance(x, str) else x


@_covers("slice_scatter.default")
def _slice_scatter(
    b: Builder, x: str, part: str, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1
) -> str:
    axis %= len(b.shapes[x])
    first, last, _ = slice(start, stop).indices(b.shapes[x][axis])
    if step != 1:
        places = np.full(b.shapes[x][axis], -1)
        places[first:last:step] = np.arange(b.shapes[part][axis])
        here = b.constant("here", (places >= 0).reshape(-1, *[1] * (len(b.shapes[x]) - 1 - axis)))
        return b.map(of("where", here, take(b, part, [axis], np.maximum(places, 0)), x), "assigned")
    edges = ((0, first), (last, b.shapes[x][axis]))
    before, after = ([_slice(b, x, axis, *edge)] if edge[0] < edge[1] else [] for edge in edges)
    return joined_parts(b, [*before, part, *after], axis)


@_covers("diagonal_scatter.default")
def _diagonal_scatter(b: Builder, x: str, part: str, offset: int = 0, one: int = 0, other: int = 1) -> str:
    axes = [axis % len(b.shapes[x]) for axis in (one, other)]
    order = [*(axis for axis in range(len(b.shapes[x])) if axis not in axes), *axes]
    rows, columns = np.indices([b.shapes[x][axis] for axis in axes])
    here, places = columns - rows == offset, np.minimum(rows, columns)
    made = take(b, part, [-1], np.where(here, places, 0))
    made = b.map(of("where", b.constant("here", here), made, b.transpose(x, order)), "assigned")
    return b.transpose(made, np.argsort(order).tolist())


@_covers("select_scatter.default")
def _select_scatter(b: Builder, x: str, part: str, axis: int, place: int) -> str:
    axis, shape = axis % len(b.shapes[x]), b.shapes[x]
    place %= shape[axis]
    return _slice_scatter(b, x, b.reshape(part, (*shape[:axis], 1, *shape[axis + 1 :])), axis, place, place + 1)


@_covers("full_like.default")
def _full_like(b: Builder, x: str, value: float, **_: Any) -> str:
    shape = b.shapes[x]
    return b.repeat(b.constant("full", np.full((1,) * len(shape), value)), shape)


@_covers("constant_pad_nd.default", "pad.default")
def _pad(b: Builder, x: str, widths: Sequence[int], mode: Any = "constant", value: float | None = 0.0) -> str:
    plain = not isinstance(mode, str) or mode == "constant"
    filled = float((value if isinstance(mode, str) else mode) or 0.0)
    for number in range(len(widths) // 2):
        axis = len(b.shapes[x]) - 1 - number
        before, after = widths[2 * number : 2 * number + 2]
        x = padded(b, x, axis, before, after, filled) if plain else _mirrored(b, x, axis, before, after, mode)
    return x


def padded(b: Builder, x: str, axis: int, before: int, after: int, value: float) -> str:
    """Pad an axis of x with `before` and `after` elements of one value. Negative widths remove elements."""
    x = _slice(b, x, axis, max(-before, 0), b.shapes[x][axis] - max(-after, 0))
    shape = b.shapes[x]
    for width, behind in ((before, False), (after, True)):
        if width > 0:
            number = b.constant("filling", np.full((1,) * len(shape), value))
            fill = b.repeat(number, (*shape[:axis], width, *shape[axis + 1 :]))
            x = joined_parts(b, [x, fill] if behind else [fill, x], axis)
    return x


def _mirrored(b: Builder, x: str, axis: int, before: int, after: int, mode: str) -> str:
    extent = b.shapes[x][axis]
    places = np.arange(-before, extent + after)
    known = {
        "reflect": extent - 1 - np.abs(extent - 1 - np.abs(places)), "replicate": np.clip(places, 0, extent - 1),
        "circular": places % extent,
    }  # fmt: skip
    if mode not in known:
        raise ValueError(f"padding by {mode}: expected constant, {', '.join(known)}")
    return take(b, x, [axis], known[mode])
