"""Pooling over images in NCHW layout: avg_pool2d and max_pool2d. A mean is a sum with a divisor (`Operator.divisor`)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from gensor_gym.operators.bodies import BODIES, limited
from gensor_gym.operators.build import access, arguments, axes, windows
from gensor_gym.operators.checks import PLAIN_TYPES, data_type, integer, pair, tensor
from gensor_gym.operators.registry import register_operator
from gensor_gym.operators.types import OUTPUT, Operator
from gensor_gym.operators.windows import options, places

Pair = int | tuple[int, int]


def _mean(op: Operator, x: np.ndarray) -> np.ndarray:
    out = np.zeros(op.output.shape)
    for _, _, part in places(op, x, 0.0):
        out += part
    return out / op.divisor


def _maximum(op: Operator, x: np.ndarray) -> np.ndarray:
    out = np.full(op.output.shape, -np.inf)
    for _, _, part in places(op, x, -np.inf):
        np.maximum(out, part, out=out)
    return out


def _window(op: Operator) -> dict[str, Any]:
    """Keyword arguments of torch's pooling function for the operator's window."""
    return {"kernel_size": op.extents[-2:], **options(op, stride=1, padding=0)}


@register_operator(_mean, lambda torch, op: partial(torch.nn.functional.avg_pool2d, **_window(op)))
def avg_pool2d(
    n: int, c: int, h: int, w: int, r: int, s: int, stride: Pair = 1, padding: Pair = 0, dtype: str = "float32"
) -> Operator:
    """Mean over windows of r x s: input [n, c, h, w], output [n, c, p, q], p and q rounded down.

    The divisor is always r * s: padding counts as zeros, which is torch's default. Padding is at most half the window. int8
    is rejected, since a mean of integers is not an integer and there is no agreed rounding.
    """
    accepted = tuple(name for name in PLAIN_TYPES if name != "int8")
    return _pool("avg_pool2d", (n, c, h, w, r, s), stride, padding, data_type(dtype, accepted), "sum")


@register_operator(_maximum, lambda torch, op: partial(torch.nn.functional.max_pool2d, **_window(op)))
def max_pool2d(
    n: int, c: int, h: int, w: int, r: int, s: int, stride: Pair = 1, padding: Pair = 0, dtype: str = "float32"
) -> Operator:
    """Maximum over windows of r x s: input [n, c, h, w], output [n, c, p, q], p and q rounded down.

    Padding is never the maximum: it reads -inf, or -128 for int8 (whose result is int32, like for every operator here).
    It is at most half the window, so that every window contains an element.
    """
    return _pool("max_pool2d", (n, c, h, w, r, s), stride, padding, data_type(dtype, PLAIN_TYPES), "max")


def _pool(
    name: str, sizes: tuple[int, ...], stride: Pair, padding: Pair, dtype: str, body: str
) -> Operator:
    """The average or maximum pooling `name`; `sizes` are n, c, h, w, r, s."""
    named = {key: integer(key, value) for key, value in zip("nchwrs", sizes, strict=True)}
    n, c, h, w, r, s = named.values()
    stride, padding = pair("stride", stride), pair("padding", padding, 0)
    if padding[0] > r // 2 or padding[1] > s // 2:
        raise ValueError(f"padding={padding}: expected at most half the window, {(r // 2, s // 2)}")
    (p, q), row, column = windows(named, stride, padding)
    loops = axes({"n": n, "c": c, "p": p, "q": q}, {"r": r, "s": s})
    return Operator(
        name=name,
        arguments=arguments(named, stride=(stride, 1), padding=(padding, 0), dtype=(dtype, "float32")),
        axes=loops,
        body=body,
        reads=(access(tensor("x", (n, c, h, w), dtype), loops, "n", "c", row, column),),
        write=access(tensor("y", (n, c, p, q), OUTPUT[dtype]), loops, "n", "c", "p", "q"),
        dtype=dtype,
        divisor=r * s if body == "sum" else 1,
        pad_value=limited(BODIES[body].reduction.identity, dtype),
        channel_axis=1,
    )
