"""Scalar expressions of a map: functions of one element of each operand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gensor_gym.dataflow.bounds import Bounded, exact, rounded
from gensor_gym.dataflow.scalars import NEAREST, SCALARS


@dataclass(frozen=True)
class Operand:
    """Part of an expression: an element of the value with this name."""

    name: str

    def __str__(self) -> str:
        return self.name


MOST_IN_FLOAT64 = 1 << 53
"""All integers up to this number are exact in float64."""


@dataclass(frozen=True)
class Constant:
    """Part of an expression: a number. It is an int if float64 may not represent the integer."""

    value: float | int

    def __str__(self) -> str:
        return repr(self.value) if math.isfinite(self.value) else "inf" if self.value > 0 else "-inf"


@dataclass(frozen=True)
class Call:
    """Part of an expression: a scalar function of expressions.

    ValueError if `SCALARS` lacks the name or takes another number of arguments.
    """

    function: str
    arguments: tuple[Expression, ...]

    def __post_init__(self) -> None:
        scalar = SCALARS.get(self.function)
        if scalar is None:
            raise ValueError(f"function {self.function!r}: expected one of {', '.join(SCALARS)}")
        if len(self.arguments) != scalar.arity:
            raise ValueError(f"{self.function} of {len(self.arguments)} arguments: expected {scalar.arity}")
        if self.function == "negative" and isinstance(self.arguments[0], Constant):  # so that each number has only one text
            raise ValueError(f"the negative of {self.arguments[0]}: expected the number itself")

    def __str__(self) -> str:
        if self.function in _SIGNS:
            sign, own = _SIGNS[self.function], _binding(self)
            left, right = self.arguments
            return f"{_bracketed(left, own)} {sign} {_bracketed(right, own + 1)}"
        if self.function == "negative":
            return f"-{_bracketed(self.arguments[0], _TIGHT)}"
        return f"{self.function}({', '.join(map(str, self.arguments))})"


Expression = Operand | Constant | Call
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "less": "<"}
_BINDING = {"less": 0, "add": 1, "subtract": 1, "multiply": 2, "divide": 2, "negative": 3}
"""Function -> precedence of its operator in Python's grammar. A higher number binds more tightly."""
_TIGHT = 4


def _binding(part: Expression) -> int:
    """Return the precedence of an expression's text. A negative number has the precedence of its sign."""
    if isinstance(part, Constant) and math.copysign(1.0, part.value) < 0:
        return _BINDING["negative"]
    return _BINDING.get(part.function, _TIGHT) if isinstance(part, Call) else _TIGHT


def _bracketed(part: Expression, least: int) -> str:
    return str(part) if _binding(part) >= least else f"({part})"


def operands(expression: Expression) -> list[str]:
    """Return the names of the values that an expression reads, each once, in order of appearance."""
    return list(dict.fromkeys(node.name for node in walk(expression) if isinstance(node, Operand)))


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield the expression and all its parts, outer parts first."""
    yield expression
    if isinstance(expression, Call):
        for part in expression.arguments:
            yield from walk(part)


def renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    """Return the expression with its operands renamed. `names` maps each old name to the new name."""
    if isinstance(expression, Operand):
        return Operand(names[expression.name])
    if isinstance(expression, Call):
        return Call(expression.function, tuple(renamed(part, names) for part in expression.arguments))
    return expression


def divisors(expression: Expression) -> list[str]:
    """Return the names of the values by which the expression divides, each once."""
    found = (
        part.arguments[1].name
        for part in walk(expression)
        if isinstance(part, Call) and part.function == "divide" and isinstance(part.arguments[1], Operand)
    )
    return list(dict.fromkeys(found))


def operations(expression: Expression) -> int:
    """Return how many floating-point operations the expression takes for one element."""
    return sum(SCALARS[node.function].operations for node in walk(expression) if isinstance(node, Call))


def bounded(expression: Expression, given: Mapping[str, Bounded], unit: float) -> Bounded:
    """Compute an expression in float64, with a bound on a kernel's error, from the values `given` by name.

    `unit` is the unit roundoff of the kernel's arithmetic.
    """
    if isinstance(expression, Operand):
        return given[expression.name]
    if isinstance(expression, Constant):
        value = np.asarray(expression.value, np.float64)
        with np.errstate(over="ignore"):
            return rounded(exact(value), unit, 0.0 if np.float32(value) == value else 1.0)
    scalar = SCALARS[expression.function]
    parts = [bounded(part, given, unit) for part in expression.arguments]
    with np.errstate(all="ignore"):
        value = scalar.value(*(part.value for part in parts))
        error = scalar.error(*(part.value for part in parts), *(part.error for part in parts))
    return rounded(Bounded(value, error), unit, scalar.roundings, expression.function in NEAREST)


INT8 = "int8"
LEAST, MOST = -128.0, 127.0
"""Ends of the range of quantised numbers, whose type is int8. A map of int8 has the expression `quantize(..)`, or copies an int8
value. Its value is an integer in the range, so it stays the same if a kernel keeps it in float32. torch's uint8 numbers are int8
numbers plus 128."""


def quantize(x: Expression, zero: Expression | float, least: float = LEAST, most: float = MOST) -> Expression:
    """Return the expression that quantises `x`, in units of the scale: round to nearest, ties to even, add `zero`, then clip."""
    zero = zero if isinstance(zero, Call | Constant | Operand) else Constant(float(zero))
    inner = Call("add", (Call("round", (x,)), zero))
    return Call("minimum", (Call("maximum", (inner, Constant(float(least)))), Constant(float(most))))


def quantized(expression: Expression) -> tuple[Expression, Expression, float, float] | None:
    """Return (x, zero, least, most) if an expression has the form `quantize(x, zero, least, most)`, else None."""
    match expression:
        case Call("minimum", (Call("maximum", (Call("add", (Call("round", (x,)), zero)), Constant(least))), Constant(most))):
            if LEAST <= least <= most <= MOST and least == round(least) and most == round(most):
                return x, zero, least, most
    return None


def check_int8(expression: object) -> None:
    """Raise ValueError unless the expression of a map that is stored as int8 is a `quantize(..)` or a copy."""
    if not isinstance(expression, Operand) and (not isinstance(expression, Call) or quantized(expression) is None):
        raise ValueError(f"int8 = {expression}: expected minimum(maximum(round(x) + zero, -128), 127), or a copy of int8")


def dequantized(expression: Expression) -> tuple[str, float, float] | None:
    """Return (name, zero, scale) if an expression has the form (name - zero) * scale, else None."""
    match expression:
        case Call("multiply", (Call("subtract", (Operand(name), Constant(zero))), Constant(scale))):
            return name, zero, scale
    return None
