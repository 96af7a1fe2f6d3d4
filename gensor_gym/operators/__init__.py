"""What is computed: operators as frozen data, one small function for each, their text form and a NumPy reference."""

from __future__ import annotations

from gensor_gym.operators.convolution import conv2d, depthwise_conv2d
from gensor_gym.operators.inputs import random_inputs
from gensor_gym.operators.linear import batched_gemm, gemm, gemv, reduce_sum
from gensor_gym.operators.maps import elementwise
from gensor_gym.operators.pooling import avg_pool2d, max_pool2d
from gensor_gym.operators.reference import evaluate
from gensor_gym.operators.resolve import resolve, resolve_one
from gensor_gym.operators.splits import part_of, split
from gensor_gym.operators.tables import named_shapes
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
    "random_inputs",
    "reduce_sum",
    "resolve",
    "resolve_one",
    "split",
]
