"""Operators as text such as `gemm(m=512, n=384, k=1000)+bias+relu`, which is parsed and never executed."""

from __future__ import annotations

import ast
import inspect
from functools import lru_cache
from typing import Any

from gensor_gym.operators.loops import FROZEN
from gensor_gym.operators.registry import FACTORIES
from gensor_gym.operators.types import Operator
from gensor_gym.plugins import load_named
from gensor_gym.registry import near


def names() -> tuple[str, ...]:
    """Return the names of all operators."""
    return tuple(FACTORIES)


def parse(text: str) -> Operator:
    """Return the operator that `text` describes; `str(op)` gives the canonical text.

    Arguments are literals, by keyword or by position; `+bias+relu` appends epilogue stages, `frozen ` before the name makes
    weights constant. ValueError for anything else.
    """
    if not isinstance(text, str):
        raise ValueError(f"operator {text!r}: expected text such as 'gemm(m=512, n=384, k=1000)+bias+relu'")
    if text.startswith(FROZEN):
        return parse(text.removeprefix(FROZEN)).freeze()
    name, call, stages = _split(text)
    if name not in FACTORIES:
        load_named()
    if name not in FACTORIES:
        raise ValueError(f"operator {name!r} in {text!r}: expected one of {', '.join(FACTORIES)}{near(name, FACTORIES)}")
    factory = FACTORIES[name]
    values, options = _literals(call, text)
    signature = inspect.signature(factory)
    rest = next((key for key, given in signature.parameters.items() if given.kind is given.VAR_POSITIONAL), None)
    if rest in options:  # canonical text writes a starred parameter, the shape of a map, as one tuple
        before, extents = list(signature.parameters)[: list(signature.parameters).index(rest)], options.pop(rest)
        if values[len(before) :] or not isinstance(extents, (tuple, list)):
            raise ValueError(f"{text!r}: expected {rest}=(rows, columns, ...) or extents by position, not both")
        values = [*values, *(options.pop(key) for key in before if key in options), *extents]
    try:
        signature.bind(*values, **options)
    except TypeError as error:
        accepted = f"{factory.__name__}{signature}".replace("'", "")
        raise ValueError(f"{text!r}: {error}; expected {accepted}") from error
    return factory(*values, **options).with_epilogue(*stages)


@lru_cache(maxsize=4096)
def with_arguments(op: Operator, **changed: object) -> Operator:
    """Return the operator with other arguments, such as the order `image="nhwc"` of a tensor (see `operators.images`).

    ValueError if the operator does not take them. If one changes the output's type, the operator must have no epilogue.
    """
    return parse(str(op.renamed(arguments=tuple((dict(op.arguments) | changed).items()))))


def read_call(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call in text, by position and by keyword. ValueError for an epilogue, and for non-literals."""
    _, call, stages = _split(text)
    if stages:
        raise ValueError(f"{text!r}: expected no epilogue")
    return _literals(call, text)


def _split(text: str) -> tuple[str, ast.Call, list[str]]:
    """Return (operator's name, the call, names of the epilogue stages in order) of a text."""
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
    """Return the positional and keyword arguments of a call. ValueError for anything but literals."""
    keys = [word.arg for word in call.keywords]
    if None in keys or len(set(keys)) < len(keys):
        raise ValueError(f"operator {text!r}: expected plain arguments, each once")
    try:
        values = [ast.literal_eval(value) for value in call.args]
        options = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"operator {text!r}: expected literals as arguments: numbers, strings in quotes, pairs") from error
    return values, options
