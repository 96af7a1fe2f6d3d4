"""Rules for convolutions and pooling of volumes: as images whose channels include neighbours in depth, or axis by axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gensor_gym.frontends.aten.images.largest import largest, largest_to, places_of, spaced
from gensor_gym.frontends.aten.images.transposed import transposed
from gensor_gym.frontends.aten.images.windows import as_batch, averaged, convolved, means_to
from gensor_gym.frontends.aten.moves import padded
from gensor_gym.frontends.aten.places import take
from gensor_gym.frontends.builder import Builder
from gensor_gym.frontends.covered import covers as _covers


def _three(given: int | Sequence[int]) -> tuple[int, int, int]:
    """Return (depth, height, width) from three numbers, or from one number for all."""
    return (given, given, given) if isinstance(given, int) else (given[0], given[len(given) // 2], given[-1])


@_covers("conv3d.padding")
@as_batch
def _conv3d_padded(
    b: Builder, x: str, w: str, bias: str | None = None, stride: Any = 1, padding: str = "valid", dilation: Any = 1,
    groups: int = 1,
) -> str:  # fmt: skip
    if padding == "same":
        for axis, taps, apart in zip((2, 3, 4), b.shapes[w][2:], _three(dilation), strict=True):
            around = apart * (taps - 1)
            x = padded(b, x, axis, around // 2, around - around // 2, 0.0)
    return _conv3d(b, x, w, bias, stride, 0, dilation, groups)


@_covers("conv3d.default")
@as_batch
def _conv3d(
    b: Builder, x: str, w: str, bias: str | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> str:
    """Add the convolution of x [n, c, d, h, w] with weights [k, c/groups, t, r, s], as one of images with t * c channels."""
    (deep, *by), (before, *edges), (apart, *wide) = map(_three, (stride, padding, dilation))
    k, _, taps, r, s = b.shapes[w]
    x = padded(b, x, 2, before, before, 0.0) if before else x
    n, c, depth, height, width = b.shapes[x]
    if (made := (depth - apart * (taps - 1) - 1) // deep + 1) < 1:
        raise ValueError(f"a convolution of depth {depth} by windows of {apart * (taps - 1) + 1}: expected windows that fit")
    places = (np.arange(made)[:, None] * deep + np.arange(taps) * apart).reshape(-1)
    if not np.array_equal(places, np.arange(depth)):
        x = take(b, x, [2], places)
    near = b.transpose(b.reshape(x, (n, c, made, taps, height * width)), (0, 2, 1, 3, 4))
    images = b.reshape(b.dense(near), (n * made, c * taps, height, width))
    found = convolved(b, images, b.reshape(w, (k, -1, r, s)), bias, by, edges, wide, groups)
    p, q = b.shapes[found][2:]
    return b.reshape(b.transpose(b.reshape(found, (n, made, k, p * q)), (0, 2, 1, 3)), (n, k, made, p, q))


@_covers("conv_transpose3d.input")
@as_batch
def _transposed(
    b: Builder, x: str, w: str, bias: str | None = None, stride: Any = 1, padding: Any = 0, more: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> str:  # fmt: skip
    """Add the transposed convolution of x [n, c, d, h, w] with weights [c, k/groups, t, r, s]."""
    sizes = _three(stride), _three(padding), _three(dilation), _three(more)
    made = transposed(b, x, w, lambda *given: _conv3d(*given[:3], dilation=given[3], groups=groups), *sizes, groups)
    return made if bias is None else b.call("add", made, b.reshape(bias, (b.shapes[made][1], 1, 1, 1)))


def _axis_by_axis(
    b: Builder, x: str, rule: Any, size: Any, stride: Any, padding: Any, flat_more: Sequence[Any], deep_more: Sequence[Any]
) -> str:
    """Pool a volume along height and width, then along depth, each time with `rule`, which pools images.

    Further arguments of `rule` are `flat_more` the first time and `deep_more` the second time.
    """
    sizes, strides, edges = _three(size), _three(stride or size), _three(padding)
    shape = b.shapes[x]
    whole = (1, *shape) if len(shape) == 4 else shape
    n, c, depth, height, width = whole
    flat = rule(b, b.reshape(x, (n, c * depth, height, width)), sizes[1:], strides[1:], edges[1:], *flat_more)
    p, q = b.shapes[flat][2:]
    tall = b.reshape(flat, (n, c, depth, p * q))
    found = rule(b, tall, (sizes[0], 1), (strides[0], 1), (edges[0], 0), *deep_more)
    made = (n, c, b.shapes[found][2], p, q)
    return b.reshape(found, made[5 - len(shape) :])


@_covers("max_pool3d.default")
def _max_pool3d(
    b: Builder, x: str, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> str:
    deep, *flat = _three(dilation)
    return _axis_by_axis(b, x, largest, size, stride, padding, (flat, ceil_mode), ((deep, 1), ceil_mode))


@_covers("max_pool3d_with_indices.default")
def _max_pool3d_with_indices(
    b: Builder, x: str, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[str, str]:
    made = _max_pool3d(b, x, size, stride, padding, dilation, ceil_mode)
    sizes = zip(b.shapes[made][-3:], *map(_three, (size, stride or size, padding, dilation)), strict=True)
    return made, places_of(b, x, made, [spaced(*one) for one in sizes])


@_covers("adaptive_max_pool3d.default")
def _adaptive_max_pool3d(b: Builder, x: str, to: Any) -> tuple[str, str]:
    return largest_to(b, x, [extent if one is None else one for extent, one in zip(b.shapes[x][-3:], _three(to), strict=True)])


@_covers("avg_pool3d.default")
def _avg_pool3d(
    b: Builder, x: str, size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> str:  # fmt: skip
    more = ceil_mode, count_include_pad
    flat, deep = (more, more) if divisor_override is None else ((*more, 1), (*more, divisor_override))
    return _axis_by_axis(b, x, averaged, size, stride, padding, flat, deep)


@_covers("adaptive_avg_pool3d.default", "_adaptive_avg_pool3d.default")
def _adaptive_avg_pool3d(b: Builder, x: str, to: Any) -> str:
    if _three(to) == (1, 1, 1):
        return b.mean(x, (-3, -2, -1))
    rank = len(b.shapes[x])
    for axis, wanted in zip(range(rank - 1, rank - 4, -1), reversed(_three(to)), strict=True):
        x = means_to(b, x, axis, b.shapes[x][axis] if wanted is None else wanted)
    return x
