"""Convolutions over images: conv2d (also grouped, dilated, or with channels last) and depthwise_conv2d."""

from __future__ import annotations

from typing import Any

import numpy as np

from gensor_gym.operators.build import Dimensions, access, arguments, axes, in_memory, windows
from gensor_gym.operators.checks import data_type, integer, one_of, pair, tensor
from gensor_gym.operators.images import IMAGES, WEIGHTS, in_order, options, order_of, outputs, pitches, places
from gensor_gym.operators.kinds.winograd import TAPS, TILE
from gensor_gym.operators.registry import register_operator
from gensor_gym.operators.types import INPUT, OUTPUT, Operator

Pair = int | tuple[int, int]


def _conv2d(op: Operator, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Compute the convolution as a sum, over the window's positions, of one matrix product over channels per group."""
    groups = options(op, groups=1)["groups"]
    x, w = in_order(x, IMAGES[0], order_of(op, "image")), in_order(w, WEIGHTS[0], order_of(op, "weights"))
    n, k, (p, q) = len(x), len(w), outputs(op)
    w = w.reshape(groups, k // groups, -1, *w.shape[2:])
    out = np.zeros((n, groups, k // groups, p * q))
    for r, s, part in places(op, x, op.pad_value):
        out += w[..., r, s] @ part.reshape(n, groups, -1, p * q)
    return in_order(out.reshape(n, k, p, q), order_of(op, "result"), IMAGES[0])


def _depthwise_conv2d(op: Operator, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    order = order_of(op, "image")
    x, w = in_order(x, IMAGES[0], order), in_order(w, WEIGHTS[0], order_of(op, "weights"))
    out = np.zeros((*x.shape[:2], *outputs(op)))
    for r, s, part in places(op, x, op.pad_value):
        out += part * w[:, 0, r, s, None, None]
    return in_order(out, order, IMAGES[0])


def _in_torch(torch: Any, op: Operator) -> Any:
    """Return torch's convolution for the operator's orders of dimensions.

    Other orders are permuted views, which torch calls channels last.
    """
    image, result = order_of(op, "image"), order_of(op, "result")
    given = options(op, stride=1, padding=0, dilation=1, groups=1)
    if op.name == "depthwise_conv2d":
        given["groups"], result = op.extents[op.channel_axis], image

    def convolve(x: Any, w: Any) -> Any:
        x, w = in_order(x, IMAGES[0], image), in_order(w, WEIGHTS[0], order_of(op, "weights"))
        return in_order(torch.nn.functional.conv2d(x, w, **given), result, IMAGES[0])

    return convolve


@register_operator(_conv2d, _in_torch)
def conv2d(
    n: int, c: int, h: int, w: int, k: int, r: int, s: int,
    stride: Pair = 1, padding: Pair = 0, dilation: Pair = 1, groups: int = 1, dtype: str = "float32", pad_value: int = 0,
    image: str = "nchw", weights: str = "kcrs", result: str = "nchw", winograd: int = 0, image_pitch: int = 0,
    result_pitch: int = 0,
) -> Operator:  # fmt: skip
    """Make a two-dimensional convolution as in deep learning (the kernel is not flipped).

    Input [n, c, h, w], weight [k, c/groups, r, s], output [n, k, p, q], p and q rounded down. With groups > 1 there is an axis g
    before k, axes k and c run within a group, and the output channel is g * (k/groups) + k. `stride`, `padding` and `dilation`
    are one integer or a pair (height, width). int8 operands give an int32 result. Padding is `pad_value`: 0, or for int8 any
    number of int8, such as a zero point.

    Without groups, `image` and `result` may be "nhwc", and `weights` "rskc": orders of dimensions in memory. With an image
    "nhwc", float32 and 3x3 windows without stride, `winograd=2` computes 2x2 outputs from 16 products instead of 36
    (`kinds.winograd`). Sums are then rounded otherwise, and an infinity in a window may give NaN. `image_pitch` and
    `result_pitch` are numbers of channels of larger float32 images "nhwc" whose first channels are read or written.
    """
    sizes = {key: integer(key, v) for key, v in dict(n=n, c=c, h=h, w=w, k=k, r=r, s=s).items()}
    n, c, h, w, k, r, s = sizes.values()
    orders = _orders(groups == 1, image=image, weights=weights, result=result)
    stride, padding, dilation = pair("stride", stride), pair("padding", padding, 0), pair("dilation", dilation)
    groups, dtype = _groups(groups, c, k), _checked(pad_value, data_type(dtype))
    (p, q), row, column = windows(sizes, stride, padding, dilation)
    outer = {"n": n, **({"g": groups} if groups > 1 else {}), "k": k // groups, "p": p, "q": q}
    loops = axes(outer, {"c": c // groups, "r": r, "s": s})
    channel = {"g": k // groups, "k": 1}
    pixels: Dimensions = {"n": (n, "n"), "c": (c, {"g": c // groups, "c": 1}), "h": (h, row), "w": (w, column)}
    filters: Dimensions = {"k": (k, channel), "c": (c // groups, "c"), "r": (r, "r"), "s": (s, "s")}
    made: Dimensions = {"n": (n, "n"), "c": (k, channel), "h": (p, "p"), "w": (q, "q")}
    orders |= _winograd(winograd, (r, s, stride, dilation, dtype, image, weights))
    orders |= pitches(image_pitch, image, result_pitch, result, dtype)
    options = {"stride": (stride, 1), "padding": (padding, 0), "dilation": (dilation, 1), "groups": (groups, 1)}
    x = in_memory("x", pixels, image, INPUT[dtype], loops, image_pitch)
    return Operator(
        name="conv2d", axes=loops, body="multiply_add", dtype=dtype, pad_value=float(pad_value), winograd=winograd,
        arguments=arguments(sizes, **options, dtype=(dtype, "float32"), pad_value=(pad_value, 0), **orders),
        reads=(x, in_memory("w", filters, weights, INPUT[dtype], loops)), channel_axis=list(outer).index("k"),
        write=in_memory("y", made, result, OUTPUT[dtype], loops, result_pitch),
    )  # fmt: skip


def _winograd(winograd: object, given: tuple[object, ...]) -> dict[str, tuple[object, object]]:
    """Return {argument: (value, default)}. ValueError for a value but 0 and 2, and for what the algorithm does not compute."""
    if type(winograd) is not int or winograd not in (0, TILE):
        raise ValueError(f"winograd={winograd!r}: expected 0 or {TILE}")
    wanted = (TAPS, TAPS, (1, 1), (1, 1), "float32", IMAGES[1], WEIGHTS[0])
    if winograd and given != wanted:
        names = ("r", "s", "stride", "dilation", "dtype", "image", "weights")
        wrong = [f"{n}={g!r}, expected {w!r}" for n, g, w in zip(names, given, wanted, strict=True) if g != w]
        raise ValueError(f"winograd={winograd}: {'; '.join(wrong)}")
    return {"winograd": (winograd, 0)}


def _orders(any_order: bool, **orders: str) -> dict[str, tuple[object, object]]:
    """Return {argument: (order, default)} for orders of dimensions. ValueError for an unknown order.

    Unless `any_order`, only the default is accepted.
    """
    known = {name: WEIGHTS if name == "weights" else IMAGES for name in orders}
    return {name: (one_of(name, orders[name], some if any_order else some[:1]), some[0]) for name, some in known.items()}


def _checked(pad_value: object, dtype: str) -> str:
    """Return the data type. ValueError unless the pad value is 0, or a number of int8 for int8."""
    if pad_value != 0 and not (dtype == "int8" and -128 <= integer("pad_value", pad_value, -128) <= 127):
        raise ValueError(f"pad_value={pad_value} of {dtype}: expected 0, or of int8 -128 to 127")
    return dtype


def _groups(groups: object, c: int, k: int) -> int:
    """Return the number of groups. ValueError unless it divides the input and output channels."""
    groups = integer("groups", groups)
    if c % groups or k % groups:
        raise ValueError(f"groups={groups}: expected a divisor of c={c} and of k={k}")
    return groups


@register_operator(_depthwise_conv2d, _in_torch)
def depthwise_conv2d(
    n: int, c: int, h: int, w: int, r: int, s: int, stride: Pair = 1, padding: Pair = 0, dtype: str = "float32",
    pad_value: int = 0, image: str = "nchw", weights: str = "kcrs", image_pitch: int = 0, result_pitch: int = 0,
) -> Operator:  # fmt: skip
    """Make a depthwise convolution: every channel has a window of its own.

    Input [n, c, h, w], weight [c, 1, r, s] (like in torch), output [n, c, p, q], p and q rounded down. `stride` and `padding` are
    one integer or a pair (height, width). int8 operands give an int32 result. Padding is `pad_value`: 0, or for int8 any number
    of int8, such as a zero point. With `image="nhwc"` input and output have their channels last; `weights` may then be "rskc",
    [r, s, c, 1], so that vectors of channels read all three in place. `image_pitch` and `result_pitch` are those of `conv2d`.
    """
    sizes = {key: integer(key, v) for key, v in dict(n=n, c=c, h=h, w=w, r=r, s=s).items()}
    n, c, h, w, r, s = sizes.values()
    stride, padding, dtype = pair("stride", stride), pair("padding", padding, 0), _checked(pad_value, data_type(dtype))
    orders = _orders(True, image=image, weights=weights)
    (p, q), row, column = windows(sizes, stride, padding)
    outer = dict(zip("nchw", (("n", n), ("c", c), ("p", p), ("q", q)), strict=True))
    made = dict(outer[letter] for letter in image)
    loops = axes(made, {"r": r, "s": s})
    pixels: Dimensions = {"n": (n, "n"), "c": (c, "c"), "h": (h, row), "w": (w, column)}
    filters: Dimensions = {"k": (c, "c"), "c": (1, {}), "r": (r, "r"), "s": (s, "s")}
    orders |= pitches(image_pitch, image, result_pitch, image, dtype)
    given = {"stride": (stride, 1), "padding": (padding, 0), "dtype": (dtype, "float32"), "pad_value": (pad_value, 0)}
    x = image, INPUT[dtype], loops, image_pitch
    return Operator(
        name="depthwise_conv2d", axes=loops, body="multiply_add", dtype=dtype, pad_value=float(pad_value),
        arguments=arguments(sizes, **given, **orders),
        reads=(in_memory("x", pixels, *x), in_memory("w", filters, weights, INPUT[dtype], loops)),
        write=access(tensor("y", tuple(made.values()), OUTPUT[dtype], result_pitch), loops, *made),
        channel_axis=list(made).index("c"),
    )  # fmt: skip
