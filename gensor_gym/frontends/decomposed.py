"""Decompositions (into simpler operations) that torch lacks, or that give other results than torch's kernels for inf and NaN."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial, reduce
from operator import and_, mul
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch.nn.functional import linear

_CUBIC = -0.75
"""Parameter a of cubic convolution (Keys 1981), equal to torch's."""
_MEAN, _SUM = 1, 2
"""ATen's codes of the reductions of a loss."""


def grid_sampler(image: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    """Sample an image [n, c, ..] at the positions of a grid [n, .., axes]. Return [n, c, ..].

    Positions are -1 to 1; the first coordinate is along the last axis of the image. `mode`: 0 linear, 1 nearest, 2 cubic.
    `padding`: 0 zeros, 1 border, 2 reflection. If `corners`, -1 and 1 are the centres of the outermost elements. Infinite and NaN
    positions give the results of torch's kernels, which differ between images and volumes.
    """
    n, c, *sizes = image.shape
    volume = len(sizes) == 3
    axes = []
    for axis, size in enumerate(sizes):
        bounded = partial(_bounded, size=size, padding=padding, corners=corners, lost=size - 1.0 if volume else 0.0)
        axes.append(_taps(grid[..., -1 - axis].reshape(n, 1, -1), mode, bounded, size, corners))
    flat = image.reshape(n, c, -1)
    row, channel = (torch.arange(size).reshape(shape) for size, shape in ((n, (n, 1, 1)), (c, (1, c, 1))))
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    made = torch.zeros(())
    for taps in itertools.product(*axes):
        inside = reduce(and_, ((0 <= at) & (at < size) for (at, _), size in zip(taps, sizes, strict=True)))
        place = sum(at * stride for (at, _), stride in zip(taps, strides, strict=True))
        read = flat[row, channel, torch.where(inside, place, 0.0).to(torch.int64)]
        weight = reduce(mul, (weight for _, weight in taps))
        # Outside an image 0 is multiplied by the weight, so a weight of NaN gives NaN. Outside a volume 0 is added.
        made = made + (torch.where(inside, read * weight, 0.0) if volume else torch.where(inside, read, 0.0) * weight)
    return made.reshape(n, c, *grid.shape[1:-1])


def _taps(places: Tensor, mode: int, bounded: Callable[[Tensor], Tensor], size: int, corners: bool) -> list[tuple[Tensor, Any]]:
    """Return (index, weight) for every neighbour that an interpolation along one axis reads, as tensors of the positions' shape.

    `places` are positions from -1 to 1 along an axis of `size` elements; `bounded` moves positions inside it. Indices are
    float32.
    """
    at = (places + 1) * (0.5 * (size - 1)) if corners else (places + 1) * (0.5 * size) - 0.5
    if mode == 2:
        first = at.floor()
        return [(bounded(first + (tap - 1)), weight) for tap, weight in enumerate(_cubic(at - first))]
    at = bounded(at)
    if mode == 1:
        return [(at.round(), 1.0)]
    first = at.floor()
    return [(first, first + 1 - at), (first + 1, at - first)]


def _bounded(at: Tensor, size: int, padding: int, corners: bool, lost: float) -> Tensor:
    """Move positions inside the axis as the padding says; NaN becomes `lost`. Zero padding (0) leaves positions unchanged."""
    if padding == 0:
        return at
    if padding == 2:
        least, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
        away = (at - least).abs()
        away = away - (away / (2 * span)).floor() * (2 * span) if span else away * 0
        at = torch.minimum(away, 2 * span - away) + least
    return torch.where(at.isnan(), lost, at).clamp(0, size - 1)


def _cubic(t: Tensor) -> list[Tensor]:
    """Return the weights of four neighbours in cubic interpolation, for a position at distance t in [0, 1) from the second."""

    def near(x: Tensor) -> Tensor:
        return ((_CUBIC + 2) * x - (_CUBIC + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((_CUBIC * x - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def multilabel_margin_loss_forward(given: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Return the multi-class hinge loss, and a float32 mask of the target classes. A row's targets end at the first -1."""
    rows, labels = torch.atleast_2d(given), torch.atleast_2d(target)
    classes = rows.shape[1]
    counts = torch.cumsum((labels < 0).to(torch.int64), dim=1) == 0
    chosen = torch.where(counts, labels, 0)
    named = (torch.arange(classes) == torch.where(counts, labels, -1).unsqueeze(2)).any(dim=1)
    apart = 1 - rows.gather(1, chosen).unsqueeze(2) + rows.unsqueeze(1)
    apart = torch.where(apart > 0, apart, 0.0)  # 0 also for NaN
    loss = torch.where(counts.unsqueeze(2) & ~named.unsqueeze(1), apart, 0.0).sum(dim=(1, 2)) / classes
    loss = loss.mean() if reduction == _MEAN else loss.sum() if reduction == _SUM else loss
    return loss, named.to(given.dtype).reshape(target.shape)


def multi_margin_loss(
    given: Tensor, target: Tensor, p: float = 1, margin: float = 1, weight: Tensor | None = None, reduction: int = _MEAN
) -> Tensor:
    """Return the multi-class margin loss of rows [n, classes], or of one row, for target classes [n]."""
    rows, labels = torch.atleast_2d(given), torch.atleast_1d(target).unsqueeze(1)
    apart = margin - rows.gather(1, labels) + rows
    apart = torch.where((apart > 0) & (torch.arange(rows.shape[1]) != labels), apart, 0.0)  # 0 also for NaN
    loss = apart if p == 1 else apart * apart
    loss = (loss if weight is None else loss * torch.where(loss > 0, weight[labels], 0.0)).sum(dim=1) / rows.shape[1]
    return loss.mean() if reduction == _MEAN else loss.sum() if reduction == _SUM else loss.reshape(target.shape)


def native_multi_head_attention(
    query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, weight: Tensor, bias: Tensor, last_weight: Tensor,
    last_bias: Tensor, mask: Tensor | None = None, need_weights: bool = True, average: bool = True, mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Return multi-head attention of rows [n, rows, width], and its weights if they are needed.

    `weight` [3 * width, width] and `bias` make queries, keys and values. ValueError for a mask.
    """
    if mask is not None:
        raise ValueError(f"a mask of type {mask_type}: expected none")
    parts = zip((query, key, value), weight.chunk(3), bias.chunk(3), strict=True)
    q, k, v = (linear(one, *own).unflatten(2, (heads, width // heads)).transpose(1, 2) for one, *own in parts)
    shares = (q @ k.transpose(2, 3) / math.sqrt(width // heads)).softmax(-1)
    made = linear((shares @ v).transpose(1, 2).flatten(2), last_weight, last_bias)
    return made, (shares.mean(1) if average else shares) if need_weights else None


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._native_multi_head_attention.default: native_multi_head_attention,
    torch.ops.aten.grid_sampler_2d.default: grid_sampler,
    torch.ops.aten.grid_sampler_3d.default: grid_sampler,
    torch.ops.aten.multilabel_margin_loss_forward.default: multilabel_margin_loss_forward,
    torch.ops.aten.multi_margin_loss.default: multi_margin_loss,
}
"""Operation of ATen -> function of its arguments, which torch decomposes further."""


@contextlib.contextmanager
def in_place_of_torchs() -> Iterator[None]:
    """Hide torch's own Python decompositions of the operations in `DECOMPOSITIONS` inside the `with` block.

    They would take precedence over those of this module.
    """
    hidden = {one: one.py_kernels.pop(DispatchKey.Autograd) for one in DECOMPOSITIONS if DispatchKey.Autograd in one.py_kernels}
    try:
        for one in hidden:
            one._dispatch_cache.clear()
        yield
    finally:
        for one, kernel in hidden.items():
            one.py_kernels[DispatchKey.Autograd] = kernel
            one._dispatch_cache.clear()
