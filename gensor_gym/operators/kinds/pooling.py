"""Pooling over images, channels first or last: avg_pool2d and max_pool2d. A mean is a sum with a divisor (`Operator.divisor`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from gensor_gym.operators.bodies import BODIES, limited
from gensor_gym.operators.build import Dimensions, access, arguments, axes, in_memory, windows
from gensor_gym.operators.checks import PLAIN_TYPES, data_type, integer, one_of, pair, tensor
from gensor_gym.operators.images import IMAGES, in_order, options, order_of, pitches, places
from gensor_gym.operators.registry import register_operator
from gensor_gym.operators.types import OUTPUT, Operator

Pair = int | tuple[int, int]


def _mean(op: Operator, x: np.ndarray) -> np.ndarray:
    return _over_places(op, x, 0.0, np.add) / op.divisor


def _maximum(op: Operator, x: np.ndarray) -> np.ndarray:
    return _over_places(op, x, -np.inf, np.maximum)


def _over_places(op: Operator, x: np.ndarray, start: float, combine: Callable[..., np.ndarray]) -> np.ndarray:
    """Combine `start` with the elements at every position of the windows, and return the result in the operator's order."""
    order = order_of(op, "image")
    parts = (part for _, _, part in places(op, in_order(x, IMAGES[0], order), start))
    return in_order(reduce(combine, parts, np.full((), start)), order, IMAGES[0])


def _in_torch(pad: Callable[..., Any], function: Callable[..., Any], op: Operator) -> Callable[[Any], Any]:
    order, window = order_of(op, "image"), {"kernel_size": op.extents[-2:], **options(op, stride=1, padding=0)}
    down, right = pair("behind", options(op, behind=0)["behind"], 0)

    def pooled(x: Any) -> Any:
        x = in_order(x, IMAGES[0], order)
        x = pad(x, (0, right, 0, down), value=op.pad_value) if down or right else x
        return in_order(function(x, **window), order, IMAGES[0])

    return pooled


@register_operator(_mean, lambda torch, op: _in_torch(torch.nn.functional.pad, torch.nn.functional.avg_pool2d, op))
def avg_pool2d(
    n: int, c: int, h: int, w: int, r: int, s: int, stride: Pair = 1, padding: Pair = 0, dtype: str = "float32",
    image: str = "nchw", image_pitch: int = 0, result_pitch: int = 0, behind: Pair = 0,
) -> Operator:  # fmt: skip
    """Make a mean over windows of r x s: input [n, c, h, w], output [n, c, p, q], p and q rounded down.

    The divisor is always r * s: padding counts as zeros, which is torch's default. Padding is at most half the window. `behind`
    is more padding, behind rows and columns only. int8 is rejected, because a mean of integers is not an integer and there is no
    agreed rounding. With `image="nhwc"` input and output have their channels last. `image_pitch` and `result_pitch` are those of
    `conv2d`.
    """
    accepted = tuple(name for name in PLAIN_TYPES if name != "int8")
    windows_of, order = (stride, padding, behind), (image, image_pitch, result_pitch)
    return _pool("avg_pool2d", (n, c, h, w, r, s), windows_of, data_type(dtype, accepted), "sum", order)


@register_operator(_maximum, lambda torch, op: _in_torch(torch.nn.functional.pad, torch.nn.functional.max_pool2d, op))
def max_pool2d(
    n: int, c: int, h: int, w: int, r: int, s: int, stride: Pair = 1, padding: Pair = 0, dtype: str = "float32",
    image: str = "nchw", image_pitch: int = 0, result_pitch: int = 0, behind: Pair = 0,
) -> Operator:  # fmt: skip
    """Make a maximum over windows of r x s: input [n, c, h, w], output [n, c, p, q], p and q rounded down.

    Padding is never the maximum: it is -inf, or -128 for int8 (whose result is int32, like for every operator). It is at most
    half the window, so that every window contains an element. `behind` is more padding, behind rows and columns only. With
    `image="nhwc"` input and output have their channels last. `image_pitch` and `result_pitch` are those of `conv2d`.
    """
    windows_of, order = (stride, padding, behind), (image, image_pitch, result_pitch)
    return _pool("max_pool2d", (n, c, h, w, r, s), windows_of, data_type(dtype, PLAIN_TYPES), "max", order)


def _pool(
    name: str, sizes: tuple[int, ...], steps: tuple[Pair, Pair, Pair], dtype: str, body: str, order: tuple[str, int, int]
) -> Operator:
    """Make a pooling operator.

    `sizes` are n, c, h, w, r, s, `steps` stride, padding and padding behind, `order` that of the image and both pitches.
    """
    named = {key: integer(key, value) for key, value in zip("nchwrs", sizes, strict=True)}
    n, c, h, w, r, s = named.values()
    stride, padding, behind = pair("stride", steps[0]), pair("padding", steps[1], 0), pair("behind", steps[2], 0)
    image, image_pitch, result_pitch = order
    if padding[0] > r // 2 or padding[1] > s // 2:
        raise ValueError(f"padding={padding}: expected at most half the window, {(r // 2, s // 2)}")
    (p, q), row, column = windows(named, stride, padding, behind=behind)
    if (p - 1) * stride[0] - padding[0] >= h or (q - 1) * stride[1] - padding[1] >= w:
        raise ValueError(f"behind={behind}: expected less, so that every window contains an element")
    given: Dimensions = {"n": (n, "n"), "c": (c, "c"), "h": (h, row), "w": (w, column)}
    outer = dict(zip("nchw", (n, c, p, q), strict=True))
    made = {{"h": "p", "w": "q"}.get(letter, letter): outer[letter] for letter in one_of("image", image, IMAGES)}
    loops = axes(made, {"r": r, "s": s})
    orders = {"image": (image, IMAGES[0]), **pitches(image_pitch, image, result_pitch, image, dtype), "behind": (behind, 0)}
    return Operator(
        name=name,
        arguments=arguments(named, stride=(stride, 1), padding=(padding, 0), dtype=(dtype, "float32"), **orders),
        axes=loops,
        body=body,
        reads=(in_memory("x", given, image, dtype, loops, image_pitch),),
        write=access(tensor("y", tuple(made.values()), OUTPUT[dtype], result_pitch), loops, *made),
        dtype=dtype,
        divisor=r * s if body == "sum" else 1,
        pad_value=limited(BODIES[body].reduction.identity, dtype),
        channel_axis=list(made).index("c"),
    )
