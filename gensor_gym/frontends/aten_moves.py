"""Operations of ATen that move data: shapes, orders, parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gensor_gym.dataflow.nodes import Concat, Pad, Slice
from gensor_gym.frontends.builder import Builder
from gensor_gym.frontends.covered import covers as _covers


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
    if step != 1:
        raise ValueError(f"a slice in steps of {step}: expected 1")
    axis %= len(b.shapes[x])
    first, last, _ = slice(start, stop).indices(b.shapes[x][axis])
    return x if (first, last) == (0, b.shapes[x][axis]) else b.add(Slice(x, axis, first, last), "slice")


@_covers("select.int")
def _select(b: Builder, x: str, axis: int, place: int) -> str:
    axis, shape = axis % len(b.shapes[x]), b.shapes[x]
    place %= shape[axis]
    return b.reshape(_slice(b, x, axis, place, place + 1), (*shape[:axis], *shape[axis + 1 :]))


@_covers("split.Tensor")
def _split(b: Builder, x: str, size: int, axis: int = 0) -> tuple[str, ...]:
    extent = b.shapes[x][axis]
    return tuple(_slice(b, x, axis, start, min(start + size, extent)) for start in range(0, extent, size))


@_covers("split_with_sizes.default")
def _split_with_sizes(b: Builder, x: str, sizes: Sequence[int], axis: int = 0) -> tuple[str, ...]:
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(_slice(b, x, axis, start, end) for start, end in zip(ends, ends[1:], strict=False))


@_covers("chunk.default")
def _chunk(b: Builder, x: str, chunks: int, axis: int = 0) -> tuple[str, ...]:
    return _split(b, x, -(-b.shapes[x][axis] // chunks), axis)


@_covers("cat.default")
def _cat(b: Builder, parts: Sequence[str], axis: int = 0) -> str:
    return parts[0] if len(parts) == 1 else b.add(Concat(tuple(parts), axis % len(b.shapes[parts[0]])), "cat")


@_covers("constant_pad_nd.default", "pad.default")
def _pad(b: Builder, x: str, widths: Sequence[int], mode: Any = "constant", value: float | None = 0.0) -> str:
    if mode != "constant" and isinstance(mode, str):
        raise ValueError(f"padding by {mode}: expected constant")
    filled = float((mode if not isinstance(mode, str) else value) or 0.0)
    for number in range(len(widths) // 2):
        before, after = widths[2 * number : 2 * number + 2]
        if before or after:
            x = b.add(Pad(x, len(b.shapes[x]) - 1 - number, before, after, filled), "pad")
    return x
