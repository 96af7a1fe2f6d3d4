"""Operators as text: `gemm(m=512, n=384, k=1000)+bias+relu` read without evaluating anything."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable

from gensor_gym.operators.convolution import conv2d, depthwise_conv2d
from gensor_gym.operators.linear import batched_gemm, gemm, gemv, reduce_sum
from gensor_gym.operators.maps import elementwise
from gensor_gym.operators.pooling import avg_pool2d, max_pool2d
from gensor_gym.operators.types import Operator

FACTORIES: dict[str, Callable[..., Operator]] = {
    factory.__name__: factory
    for factory in (
        gemm, batched_gemm, gemv, conv2d, depthwise_conv2d, avg_pool2d, max_pool2d, reduce_sum, elementwise,
    )
}  # fmt: skip
"""Every operator's function by its name."""


def names() -> tuple[str, ...]:
    """Names of all operators."""
    return tuple(FACTORIES)


def parse(text: str) -> Operator:
    """The operator that `text` describes; `str(op)` gives the canonical text.

    Arguments are literals, by keyword or by position; `+bias+relu` appends epilogue stages. Raises ValueError for
    anything else.
    """
    if not isinstance(text, str):
        raise ValueError(f"operator {text!r}: expected text such as 'gemm(m=512, n=384, k=1000)+bias+relu'")
    name, call, stages = _split(text)
    if name not in FACTORIES:
        raise ValueError(f"operator {name!r} in {text!r}: expected one of {', '.join(FACTORIES)}")
    factory = FACTORIES[name]
    values, options = _literals(call, text)
    if factory is elementwise and "shape" in options:  # the canonical text writes the shape as one tuple
        shape = options.pop("shape")
        if values[1:] or not isinstance(shape, (tuple, list)):
            raise ValueError(f"{text!r}: expected shape=(rows, columns, ...) or extents by position, not both")
        values = [*values, *([options.pop("name")] if "name" in options else []), *shape]
    try:
        inspect.signature(factory).bind(*values, **options)
    except TypeError as error:
        accepted = f"{factory.__name__}{inspect.signature(factory)}".replace("'", "")
        raise ValueError(f"{text!r}: {error}; expected {accepted}") from error
    return factory(*values, **options).with_epilogue(*stages)


def _split(text: str) -> tuple[str, ast.Call, list[str]]:
    """The operator's name, its call and the names of the epilogue stages in order."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"operator {text!r} does not parse: {error}; expected e.g. 'gemm(m=4, n=4, k=4)'") from error
    stages: list[str] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.right, ast.Name):
        stages.insert(0, node.right.id)
        node = node.left
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"operator {text!r}: expected a call such as 'gemm(m=512, n=384, k=1000)+bias+relu'")
    return node.func.id, node, stages


def _literals(call: ast.Call, text: str) -> tuple[list[object], dict[str, object]]:
    """Positional and keyword arguments, which must be literals."""
    keys = [word.arg for word in call.keywords]
    if None in keys or len(set(keys)) < len(keys):
        raise ValueError(f"operator {text!r}: expected plain arguments, each once")
    try:
        values = [ast.literal_eval(value) for value in call.args]
        options = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"operator {text!r}: expected literal arguments (numbers, strings, pairs): {error}") from error
    return values, options
