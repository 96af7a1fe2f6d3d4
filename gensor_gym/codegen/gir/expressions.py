"""C text of scalar expressions of dataflow graphs, on vectors or single numbers, with the helpers of `codegen.c.micro`."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gensor_gym.dataflow.expressions import Call, Constant, Expression, Operand, walk

_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
_OF_NUMBER = {"maximum": "max", "minimum": "min"}
"""Function of expressions -> cheaper C helper, which propagates NaN of the first argument only.

It is used if an argument is a constant.
"""


def c_text(expression: Expression, names: Mapping[str, str], inverses: Mapping[str, str], width: int) -> str:
    """Return the C text of an expression on vectors of `width` lanes; `names` maps operands to variables.

    `inverses` maps some operands x to variables that contain 1 / x. A quotient by such an operand becomes a product, because a
    division takes as long as a dozen other instructions. The extra rounding stays within the bound of `dataflow.scalars` for a
    quotient.
    """
    if isinstance(expression, Constant):
        return number(expression.value)
    if isinstance(expression, Operand):
        return names[expression.name]
    parts = [c_text(part, names, inverses, width) for part in expression.arguments]
    if expression.function in _SIGNS:
        divisor = expression.arguments[-1]
        if expression.function == "divide" and isinstance(divisor, Operand) and divisor.name in inverses:
            return f"({parts[0]} * {inverses[divisor.name]})"
        return f"({parts[0]} {_SIGNS[expression.function]} {parts[1]})"
    if expression.function == "negative":
        return f"(-{parts[0]})"
    name, given = expression.function, list(zip(expression.arguments, parts, strict=True))
    if name in _OF_NUMBER and any(_is_number(part) for part, _ in given):
        name, given = _OF_NUMBER[name], sorted(given, key=lambda one: _is_number(one[0]))
    return f"{name}_{width}({', '.join(_as_vector(part, text, width) for part, text in given)})"


def number(value: float) -> str:
    """Return the C constant of type float for a number."""
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = f"{value!r}f" if "." in repr(value) or "e" in repr(value) else f"{value!r}.0f"
    return f"({text})" if value < 0 else text


def _as_vector(part: Expression, text: str, width: int) -> str:
    return f"splat_{width}({text})" if _is_number(part) and width > 1 else text


def _is_number(part: Expression) -> bool:
    signs = (*_SIGNS, "negative")
    return all(isinstance(one, Constant) or (isinstance(one, Call) and one.function in signs) for one in walk(part))
