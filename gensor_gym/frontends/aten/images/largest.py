"""Rules for max pooling of images, and for the indices of maxima in images and volumes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gensor_gym.dataflow.bounds import MOST_WHOLE
from gensor_gym.frontends.aten.choices import no_number
from gensor_gym.frontends.aten.images.windows import as_image, ends, pair, windows_along, windows_of
from gensor_gym.frontends.aten.moves import padded
from gensor_gym.frontends.aten.places import take
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import covers as _covers
from gensor_gym.operators.kinds.pooling import max_pool2d

Pair = tuple[int, int]


@_covers("max_pool2d.default")
@as_image
def largest(b: Builder, x: str, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> str:
    """Add max pooling of images: the maximum of every window."""
    if pair(dilation) != (1, 1):
        return _largest_apart(b, x, pair(size), pair(stride or size), pair(padding), pair(dilation), ceil_mode)
    tall, wide = windows_along(b, x, size, stride, padding, ceil_mode)
    n, c, height, width = b.shapes[x]
    pooling = max_pool2d(n, c, height, width, *pair(size), pair(stride or size), pair(padding), behind=(tall.behind, wide.behind))
    return b.contract(pooling, x)


def _largest_apart(b: Builder, x: str, size: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: bool) -> str:
    """Compute max pooling with dilated windows: first the maxima along each row of an image, then along each column."""
    for axis, r, step, edge, apart in zip((3, 2), size[::-1], stride[::-1], padding[::-1], dilation[::-1], strict=True):
        shape, reach = b.shapes[x], apart * (r - 1) + 1
        room = shape[axis] + 2 * edge - reach
        count = (-(-room // step) if ceil_mode else room // step) + 1
        count -= int(ceil_mode and (count - 1) * step >= shape[axis] + edge)  # a window begins in the image or before it
        if room < 0 or count < 1:
            raise ValueError(f"windows of {reach} along {shape[axis]} elements: expected shorter ones")
        x = padded(b, x, axis, edge, max(edge, (count - 1) * step + reach - shape[axis] - edge), -math.inf)
        places = np.arange(count)[:, None] * step + np.arange(r) * apart
        made = b.reduce(take(b, x, [axis], places), "max", [axis + 1])
        x = b.reshape(made, (*shape[:axis], count, *shape[axis + 1 :]))
    return x


def _largest_to(b: Builder, x: str, axis: int, to: int) -> str:
    """Compute the maxima along an axis over the `to` windows of adaptive pooling. Neighbouring windows may share an element."""
    shape = b.shapes[x]
    made = b.reduce(windows_of(b, x, axis, *ends(shape[axis], to))[0], "max", [axis + 1])
    return b.reshape(made, (*shape[:axis], to, *shape[axis + 1 :]))


@_covers("max_pool2d_with_indices.default")
def _max_pool2d_with_indices(
    b: Builder, x: str, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[str, str]:
    made = largest(b, x, size, stride, padding, dilation, ceil_mode)
    sizes = zip(b.shapes[made][-2:], pair(size), pair(stride or size), pair(padding), pair(dilation), strict=True)
    return made, places_of(b, x, made, [spaced(*one) for one in sizes])


@_covers("adaptive_max_pool2d.default")
def _adaptive_max_pool2d(b: Builder, x: str, to: Any) -> tuple[str, str]:
    wanted = [extent if one is None else one for extent, one in zip(b.shapes[x][-2:], pair(to), strict=True)]
    return largest_to(b, x, wanted)


def largest_to(b: Builder, x: str, to: Sequence[int]) -> tuple[str, str]:
    """Compute adaptive max pooling along the last axes. Return the names of (the maxima, the maxima's flat indices).

    `to` has the number of windows of each axis.
    """
    sizes, rank = b.shapes[x][-len(to) :], len(b.shapes[x])
    if set(to) == {1}:
        made = b.reduce(x, "max", range(rank - len(to), rank))
    elif len(to) == 2 and not any(extent % one for extent, one in zip(sizes, to, strict=True)):
        made = largest(b, x, [extent // one for extent, one in zip(sizes, to, strict=True)])
    else:
        made = x
        for axis, one in zip(range(rank - 1, rank - 1 - len(to), -1), reversed(to), strict=True):
            made = _largest_to(b, made, axis, one)
    windows = [(first[:, None] + np.arange((last - first).max()), last) for first, last in map(ends, sizes, to)]
    return made, places_of(b, x, made, [np.where(places < last[:, None], places, -1) for places, last in windows])


def spaced(count: int, size: int, stride: int, padding: int, dilation: int) -> np.ndarray:
    """Return the indices of the elements of each window along an axis, int [count, size].

    Those of the padding are outside the axis.
    """
    return np.arange(count)[:, None] * stride - padding + np.arange(size) * dilation


def places_of(b: Builder, x: str, top: str, windows: Sequence[np.ndarray]) -> str:
    """Compute the flat index of each window's maximum within the last axes of x.

    Of equal maxima it is the first, of several NaN the last. `top` is the name of the maxima. `windows` has, for each of the last
    axes, the indices of the windows' elements, int [count, size]. Elements with an index outside the axis are ignored.
    """
    *outer, shape = *b.shapes[x][: -len(windows)], b.shapes[x][-len(windows) :]
    count, size = math.prod(one.shape[0] for one in windows), math.prod(shape)
    if 2 * size > MOST_WHOLE:
        raise ValueError(f"places among {size} elements: expected at most {MOST_WHOLE // 2}")
    flat, inside = np.zeros((1, 1), dtype=np.int64), np.ones((1, 1), dtype=bool)
    for extent, one in zip(shape, windows, strict=True):  # [windows of the axes so far, elements of each]
        own = np.clip(one, 0, extent - 1)
        flat = (flat[:, None, :, None] * extent + own[None, :, None, :]).reshape(len(flat) * len(own), -1)
        inside = (inside[:, None, :, None] & (own == one)[None, :, None, :]).reshape(flat.shape)
    rows = math.prod(outer)
    near = take(b, b.reshape(x, (rows, size)), [1], flat)
    here, place = b.constant("here", inside), b.constant("place", flat)
    is_top = of("at_most", b.repeat(b.reshape(top, (rows, count, 1)), b.shapes[near]), near)
    first = of("where", is_top, of("subtract", size - 1.0, place), -1.0)
    rank = of("where", no_number(near), of("add", float(size), place), first)
    best = b.reduce(b.map(of("where", here, rank, -1.0), "rank"), "max", [2])
    found = of("where", of("less", best, float(size)), of("subtract", size - 1.0, best), of("subtract", best, float(size)))
    return b.reshape(b.map(found, "places"), b.shapes[top])
