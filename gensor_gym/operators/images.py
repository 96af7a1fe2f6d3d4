"""Orders in which images and weights of convolutions and poolings are in memory, such as "nhwc", and their windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from gensor_gym.operators.checks import integer
from gensor_gym.operators.loops import Loops

IMAGES, WEIGHTS, MATRICES = ("nchw", "nhwc"), ("kcrs", "rskc"), ("kn", "nk")
"""Known orders of images, of a convolution's weights and of a product's weights, outermost dimension first. The first of each is
the order of operators whose text names none."""
Arrays = TypeVar("Arrays", bound=Any)
"""An array of NumPy or a tensor of torch."""


def order_of(op: Loops, name: str) -> str:
    """Return the order of dimensions in memory, such as "nhwc", of an operator's image, weights or result (`name`)."""
    return str(dict(op.arguments).get(name, (WEIGHTS if name == "weights" else IMAGES)[0]))


def matrix_order(op: Loops) -> str:
    """Return the order of dimensions in memory, such as "nk", of a matrix product's weights."""
    return str(dict(op.arguments).get("weights", MATRICES[0]))


def pitches(image: object, image_order: str, result: object, result_order: str, dtype: str) -> dict[str, tuple[object, object]]:
    """Check distances of neighbouring pixels in memory, in elements. Return them as {argument: (value, default)}.

    ValueError unless each is 0, for pixels that follow one another, or belongs to channels last in float32.
    """
    given = {"image_pitch": (image, image_order), "result_pitch": (result, result_order)}
    for name, (value, order) in given.items():
        if integer(name, value, 0) and (order, dtype) != (IMAGES[1], "float32"):
            raise ValueError(f"{name}={value} of {dtype} in the order {order}: expected 0, or float32 in the order {IMAGES[1]}")
    return {name: (value, 0) for name, (value, _) in given.items()}


def names_orders(op: Loops) -> bool:
    """Whether an operator's text names an order of dimensions other than the usual one."""
    return not {"image", "weights", "result"}.isdisjoint(dict(op.arguments))


def permutation(order: str, of: str) -> tuple[int, ...]:
    """Return the argument of `transpose` that changes the order of dimensions `of` into `order`.

    The argument has for each dimension in `order` its index in `of`.
    """
    return tuple(of.index(letter) for letter in order)


def in_order(array: Arrays, order: str, of: str) -> Arrays:
    """Return a view of an array with its dimensions in the order `order`. `of` is their current order."""
    return array if order == of else (getattr(array, "permute", None) or array.transpose)(permutation(order, of))


def options(op: Loops, **defaults: int) -> dict[str, Any]:
    """Return the arguments of an operator that `defaults` names, as {name: value}.

    `defaults` has the values of arguments that the operator's text leaves out.
    """
    given = dict(op.arguments)
    return {name: given.get(name, default) for name, default in defaults.items()}


def outputs(op: Loops) -> tuple[int, int]:
    """Return the numbers of rows and columns of an image operator's output: the extents of axes p and q."""
    extents = {axis.name: axis.extent for axis in op.axes}
    return extents["p"], extents["q"]


def places(op: Loops, x: np.ndarray, pad_value: float) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield (r, s, elements) for every position (r, s) in the window of a convolution or pooling.

    The elements are those that all windows have at this position: a view [n, c, p, q] of x [n, c, h, w], padded with `pad_value`.
    """
    found = options(op, padding=0, stride=1, dilation=1, behind=0)
    (top, left), (down, right), (tall, wide), behind = (v if isinstance(v, tuple) else (v, v) for v in found.values())
    if top or left or any(behind):
        x = np.pad(x, ((0, 0), (0, 0), (top, top + behind[0]), (left, left + behind[1])), constant_values=pad_value)
    p, q = outputs(op)
    height, width = (op.extents[a] for a in op.reduce[-2:])
    for r in range(height):
        rows = slice(r * tall, r * tall + (p - 1) * down + 1, down)
        for s in range(width):
            yield r, s, x[:, :, rows, s * wide : s * wide + (q - 1) * right + 1 : right]
