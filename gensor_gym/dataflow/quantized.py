"""Values of int8: quantised numbers, products of them, and the expressions that make them.

A map of int8 is `minimum(maximum(round(x) + zero, least), most)` with limits inside -128 .. 127, as torch quantises, or a copy.
Its value is whole and fits, so that it is the same where a kernel keeps it in float32. torch's uint8 numbers are int8 numbers 128
higher. A product of int8 may add int32 numbers per channel: the zero point of A times the sums of constant B's columns,
sum (a - z) b = sum a b - z sum b (Jacob et al., arXiv 1712.05877, equation 7).
"""

from __future__ import annotations

from gensor_gym.dataflow.expressions import Call, Constant, Expression, Operand

INT8 = "int8"
LEAST, MOST = -128.0, 127.0


def quantize(x: Expression, zero: Expression | float, least: float = LEAST, most: float = MOST) -> Expression:
    """Expression of the int8 number of `x`, in units of the scale: rounded to nearest, ties to even, then clipped."""
    zero = zero if isinstance(zero, Call | Constant | Operand) else Constant(float(zero))
    inner = Call("add", (Call("round", (x,)), zero))
    return Call("minimum", (Call("maximum", (inner, Constant(float(least)))), Constant(float(most))))


def quantized(expression: Expression) -> tuple[Expression, Expression, float, float] | None:
    """(x, zero, least, most) of the expression `quantize(x, zero, least, most)`; None for other expressions."""
    match expression:
        case Call("minimum", (Call("maximum", (Call("add", (Call("round", (x,)), zero)), Constant(least))), Constant(most))):
            if LEAST <= least <= most <= MOST and least == round(least) and most == round(most):
                return x, zero, least, most
    return None


def check_int8(expression: object) -> None:
    """Check that the expression of a map makes an int8 number, or copies one; ValueError if not."""
    if not isinstance(expression, Operand) and (not isinstance(expression, Call) or quantized(expression) is None):
        raise ValueError(f"int8 = {expression}: expected minimum(maximum(round(x) + zero, -128), 127), or a copy of int8")

