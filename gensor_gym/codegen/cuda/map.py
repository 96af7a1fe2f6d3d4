"""Elementwise functions and epilogue stages as C text."""

from __future__ import annotations

from gensor_gym.operators.epilogue import STAGES
from gensor_gym.operators.types import Operator

_FLOAT = {
    "relu": "fmaxf({0}, 0.0f)",
    "relu6": "fminf(fmaxf({0}, 0.0f), 6.0f)",
    "gelu": "0.5f * {0} * (1.0f + erff({0} * 0.70710678f))",
    "sigmoid": "1.0f / (1.0f + expf(-{0}))",
    "tanh": "tanhf({0})",
    "exp": "expf({0})",
    "copy": "{0}",
    "add": "{0} + {1}",
    "mul": "{0} * {1}",
}
_INTEGER = {"relu": "{0} > 0 ? {0} : 0", "copy": "{0}", "add": "{0} + {1}", "mul": "{0} * {1}"}

_OPERAND_STAGES = {"bias": "{0} + {1}", "scale": "{0} * {1}", "residual": "{0} + {1}"}


def map_value(op: Operator, operands: list[str]) -> str:
    """Return the C text of an elementwise operator's function, applied to `operands`.

    ValueError lists the available functions.
    """
    return apply_function(op, op.function, operands)


def apply_function(op: Operator, name: str, operands: list[str]) -> str:
    """Return the C text of the function `name` of `operands`.

    An operand may occur twice in the text, so it must have no side effects.
    """
    table = _FLOAT if op.accumulator == "float32" else _INTEGER
    if name not in table:
        raise ValueError(f"elementwise function {name!r} of {op.dtype}: CUDA code has {', '.join(table)}")
    return table[name].format(*operands)


def apply_stage(op: Operator, name: str, value: str, operand: str | None) -> str:
    """Return the C text of the epilogue stage `name` applied to a value and an operand (or None).

    ValueError lists the known stages.
    """
    if operand is None:
        return apply_function(op, name, [value])
    if name not in _OPERAND_STAGES:
        raise ValueError(f"epilogue stage {name!r}: CUDA code has {', '.join(STAGES)}")
    return _OPERAND_STAGES[name].format(value, operand)
