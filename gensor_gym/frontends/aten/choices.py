"""Rules for operations of ATen that compare, choose between two tensors, or cast.

Truth values and masks are the numbers 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gensor_gym.dataflow.expressions import Call, Expression, Operand
from gensor_gym.dataflow.nodes import HALVES
from gensor_gym.frontends.aten.maps import cut
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import TABLE
from gensor_gym.frontends.covered import covers as _covers

Given = str | float | Expression


def neither(x: Given) -> Call:
    """Return the expression of "not x" for a truth value x (0 or 1): 1 - x."""
    return of("subtract", 1.0, x)


def equal(x: Given, y: Given) -> Call:
    """Return the expression that is 1 if x and y are equal, else 0. NaN does not equal itself."""
    return of("multiply", of("at_most", x, y), of("at_most", y, x))


def unequal(x: Given, y: Given) -> Call:
    """Return the expression that is 0 if x and y are equal, else 1. NaN does not equal itself."""
    return neither(equal(x, y))


def no_number(x: Given) -> Call:
    """Return the expression that is 1 if x is NaN, else 0."""
    return neither(of("at_most", x, x))


_COMPARED = {
    "lt": lambda x, y: of("less", x, y), "gt": lambda x, y: of("less", y, x),
    "le": lambda x, y: of("at_most", x, y), "ge": lambda x, y: of("at_most", y, x), "ne": unequal, "eq": equal,
}  # fmt: skip
for _name, _function in _COMPARED.items():
    for _kind in ("Tensor", "Scalar"):
        TABLE[f"aten.{_name}.{_kind}"] = lambda b, x, y, name=_name, function=_function: b.map(function(x, y), name)


@_covers("isnan.default")
def _isnan(b: Builder, x: str) -> str:
    return b.map(no_number(x), "no_number")


@_covers("isinf.default")
def _isinf(b: Builder, x: str) -> str:
    return b.map(of("at_most", np.inf, of("absolute", x)), "infinite")


@_covers("angle.default")
def _angle(b: Builder, x: str) -> str:
    return b.map(of("where", no_number(x), x, of("multiply", math.pi, of("less", x, 0.0))), "angle")


def _taking(sign: str) -> Callable[[Builder, str, str], str]:
    """Make the rule for `fmax` or `fmin` (`sign` is "maximum" or "minimum").

    If one argument is NaN, the result is the other one.
    """

    def rule(b: Builder, x: str, y: str) -> str:
        return b.map(of("where", no_number(x), y, of("where", no_number(y), x, of(sign, x, y))), sign)

    return rule


TABLE["aten.fmax.default"], TABLE["aten.fmin.default"] = _taking("maximum"), _taking("minimum")


def truth(b: Builder, x: Given) -> Expression:
    """Return the expression that is 1 if x is not 0, else 0."""
    if isinstance(x, str) and b.reads[x] == "bool":
        return Operand(x)
    return unequal(x, 0.0)


@_covers("logical_not.default")
def _logical_not(b: Builder, x: str) -> str:
    return b.map(neither(truth(b, x)), "neither")


@_covers("logical_and.default")
def _logical_and(b: Builder, x: str, y: str) -> str:
    return b.map(of("multiply", truth(b, x), truth(b, y)), "both")


@_covers("logical_or.default")
def _logical_or(b: Builder, x: str, y: str) -> str:
    return b.map(of("maximum", truth(b, x), truth(b, y)), "either")


@_covers("logical_xor.default")
def _logical_xor(b: Builder, x: str, y: str) -> str:
    return b.map(unequal(truth(b, x), truth(b, y)), "unlike")


@_covers("where.self")
def _where(b: Builder, mask: str, x: Given, y: Given) -> str:
    return b.map(of("where", mask, x, y), "where")


def masked(b: Builder, scores: str, mask: str) -> str:
    """Add a mask to scores of attention, -inf where a bool mask is False. As in torch, a masked NaN is not lost."""
    return b.call("add", scores, of("where", mask, 0.0, -np.inf) if b.reads.get(mask) == "bool" else mask)


@_covers("_to_copy.default")
def cast(b: Builder, x: str, dtype: Any = None, **_: Any) -> str:
    """Cast x to data type `dtype` unless it is None. Integer types truncate numbers; bool makes them 0 or 1."""
    was, now = b.reads[x], str(dtype).removeprefix("torch.") if dtype is not None else b.reads[x]
    if now == "bool" and was != "bool":
        return b.map(unequal(x, 0.0), "truth")
    return b.map(cut(x), "whole") if was == "float32" and now not in ("float32", *HALVES) else x
