"""Finds maps that a product's kernel can apply to each finished output element, as stages of `operators.epilogue`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gensor_gym.dataflow.channels import channel_vector
from gensor_gym.dataflow.expressions import LEAST, MOST, Call, Expression, Operand, operands, quantized, renamed
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Map, Node, Reshape
from gensor_gym.operators.epilogue import DEQUANTIZE, QUANTIZE, RESIDUAL_INT8, accepted_stages
from gensor_gym.operators.types import Operator

_OF_ONE = {
    "maximum(y, 0.0)": "relu", "maximum(0.0, y)": "relu",
    "minimum(maximum(y, 0.0), 6.0)": "relu6", "minimum(maximum(0.0, y), 6.0)": "relu6",
    "0.5 * y * (1.0 + erf(y * 0.7071067811865476))": "gelu",
}  # fmt: skip
"""Text of an expression of the element y -> epilogue stage that computes it."""
_WITH_CHANNEL, _WITH_ELEMENT = {"add": "bias", "multiply": "scale"}, {"add": "residual"}
"""Function of two operands -> epilogue stage. The second operand is a number per channel, or the same element of another
tensor."""


@dataclass(frozen=True)
class PostOp:
    """A stage of an operator's epilogue, and the names of the values that it reads in addition to the output element."""

    stage: str
    reads: tuple[str, ...] = ()


def post_op(graph: Dataflow, node: Node, element: str, op: Operator) -> PostOp | None:
    """Return the epilogue stage that computes `node` from `element`, the output of `op`; None if no stage does."""
    if not isinstance(node, Map):
        return None
    own = [name for name in operands(node.expression) if element in graph.behind(name, (Reshape,))]
    others = [name for name in operands(node.expression) if name not in own]
    if len(own) != 1 or len(others) > 1:
        return None
    if not others:
        stage = function_of(node.expression)
        return PostOp(stage) if stage in accepted_stages(op) else None
    return _with_operand(graph, node.expression, own[0], others[0], op)


def function_of(expression: Expression) -> str | None:
    """Return the epilogue stage that computes an expression of one value, such as `relu`; None if no stage does."""
    return _OF_ONE.get(str(renamed(expression, dict.fromkeys(operands(expression), "y"))))


def _with_operand(graph: Dataflow, expression: Expression, own: str, other: str, op: Operator) -> PostOp | None:
    if not isinstance(expression, Call):
        return None
    kind, accepted = graph.values[graph.behind(other)[-1]].dtype, accepted_stages(op)
    if quantized(expression) == (Operand(own), Operand(other), LEAST, MOST) and QUANTIZE in accepted and kind == "float32":
        vector = channel_vector(graph, other, op)
        return None if vector is None else PostOp(QUANTIZE, (vector,))
    if not all(isinstance(part, Operand) for part in expression.arguments):
        return None
    if expression.function in _WITH_CHANNEL and (vector := channel_vector(graph, other, op)) is not None:
        is_whole = op.output.dtype == "int32"
        stage = DEQUANTIZE if is_whole and expression.function == "multiply" else _WITH_CHANNEL[expression.function]
        wanted = "float32" if stage == DEQUANTIZE else op.output.dtype
        # A row nest converts other types when it loads them; a product does not. It rounds sums of integers to float32.
        return PostOp(stage, (vector,)) if kind == wanted and stage in accepted and (stage == DEQUANTIZE) == is_whole else None
    same = math.prod(graph.values[other].shape) == op.output.size == math.prod(graph.values[own].shape)
    stage = RESIDUAL_INT8 if kind == "int8" else _WITH_ELEMENT.get(expression.function, "")
    if expression.function in _WITH_ELEMENT and stage in accepted and op.output.dtype != "int32" and same:
        fits = kind in ("int8", op.output.dtype) and not graph.is_repeated(other)
        return PostOp(stage, (other,)) if fits else None
    return None
