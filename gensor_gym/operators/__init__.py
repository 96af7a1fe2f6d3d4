"""Operators such as matrix products and convolutions: a function makes each, text describes it, NumPy computes a reference."""

from __future__ import annotations

from collections.abc import Callable

from gensor_gym.operators import kinds  # noqa: F401  (registers every operator of that folder)
from gensor_gym.operators.build import plain
from gensor_gym.operators.inputs import random_inputs
from gensor_gym.operators.kinds.convolution import conv2d, depthwise_conv2d
from gensor_gym.operators.kinds.linear import batched_gemm, gemm, gemv, reduce_sum
from gensor_gym.operators.kinds.maps import elementwise
from gensor_gym.operators.kinds.pooling import avg_pool2d, max_pool2d
from gensor_gym.operators.reference import evaluate
from gensor_gym.operators.registry import FACTORIES, register_operator
from gensor_gym.operators.resolve import resolve, resolve_one
from gensor_gym.operators.shapes.splits import part_of, split
from gensor_gym.operators.shapes.tables import named_shapes
from gensor_gym.operators.text import names, parse
from gensor_gym.operators.types import Access, Axis, Operator, Stage, Tensor

__all__ = [
    "Access",
    "Axis",
    "Operator",
    "Stage",
    "Tensor",
    "avg_pool2d",
    "batched_gemm",
    "conv2d",
    "depthwise_conv2d",
    "elementwise",
    "evaluate",
    "gemm",
    "gemv",
    "max_pool2d",
    "named_shapes",
    "names",
    "parse",
    "part_of",
    "plain",
    "random_inputs",
    "reduce_sum",
    "register_operator",
    "resolve",
    "resolve_one",
    "split",
]


def __getattr__(name: str) -> Callable[..., Operator]:
    """Return the function that makes an operator which is registered but not listed in `__all__`.

    AttributeError for other names.
    """
    if name in FACTORIES:
        return FACTORIES[name]
    raise AttributeError(f"module 'gensor_gym.operators' has no attribute {name!r}; operators are {', '.join(FACTORIES)}")
