"""Elementwise functions of whole tensors."""

from __future__ import annotations

import math

from gensor_gym.operators.build import access, arguments, axes
from gensor_gym.operators.checks import PLAIN_TYPES, data_type, integer, tensor
from gensor_gym.operators.registry import register_operator
from gensor_gym.operators.types import OUTPUT, Operator
from gensor_gym.registry import near

FUNCTIONS = {"relu": 1, "gelu": 1, "sigmoid": 1, "tanh": 1, "exp": 1, "copy": 1, "add": 2, "mul": 2}
"""Elementwise functions: name -> number of tensors that the function reads."""

INTEGER_FUNCTIONS = ("relu", "copy", "add", "mul")
"""Functions that map integers to integers, and so support int8."""


@register_operator()
def elementwise(name: str, *shape: int, dtype: str = "float32") -> Operator:
    """Make a function of each element of one tensor (relu, gelu with erf, sigmoid, tanh, exp, copy) or of two (add, mul).

    The loop is one flat axis over all elements. A per-channel epilogue (bias, scale), whose channel is the last dimension, turns
    it into two axes, rows and columns. int8 is accepted by relu, copy, add and mul and gives int32.
    """
    if not isinstance(name, str) or name not in FUNCTIONS:
        raise ValueError(f"name={name!r}: expected one of {', '.join(FUNCTIONS)}{near(name, FUNCTIONS)}")
    sizes = tuple(integer(f"shape[{i}]", extent) for i, extent in enumerate(shape))
    if not sizes:
        raise ValueError("shape=(): expected at least one extent, as in elementwise('relu', 128, 256)")
    integral = dtype == "int8" and name not in INTEGER_FUNCTIONS
    dtype = data_type(dtype, tuple(key for key in PLAIN_TYPES if key != "int8") if integral else PLAIN_TYPES)
    loops, view = axes({"i": math.prod(sizes)}), (math.prod(sizes),)
    return Operator(
        name="elementwise",
        arguments=arguments({"name": name, "shape": sizes}, dtype=(dtype, "float32")),
        axes=loops,
        body="map",
        reads=tuple(access(tensor(key, sizes, dtype), loops, "i", view=view) for key in ("x", "ab")[FUNCTIONS[name] - 1]),
        write=access(tensor("y", sizes, OUTPUT[dtype]), loops, "i", view=view),
        dtype=dtype,
        function=name,
    )
