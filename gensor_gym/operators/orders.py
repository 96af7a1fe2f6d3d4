"""Orders of an image's and of weights' dimensions in memory, outermost first, such as "nhwc": channels last."""

from __future__ import annotations

from typing import Any, TypeVar

from gensor_gym.operators.loops import Loops

IMAGES, WEIGHTS = ("nchw", "nhwc"), ("kcrs", "rskc")
"""Orders of images, and of a convolution's weights; the first are those of operators whose text names none."""
Arrays = TypeVar("Arrays", bound=Any)
"""An array of NumPy or a tensor of torch."""


def order_of(op: Loops, name: str) -> str:
    """The order that an operator's argument `name` (image, weights or result) names."""
    return str(dict(op.arguments).get(name, (WEIGHTS if name == "weights" else IMAGES)[0]))


def permutation(order: str, of: str) -> tuple[int, ...]:
    """For each dimension in `order`, its number in the order `of`: what `transpose` takes to change `of` into `order`."""
    return tuple(of.index(letter) for letter in order)


def in_order(array: Arrays, order: str, of: str) -> Arrays:
    """An array in the order `of` as a view in another order."""
    return array if order == of else (getattr(array, "permute", None) or array.transpose)(permutation(order, of))
