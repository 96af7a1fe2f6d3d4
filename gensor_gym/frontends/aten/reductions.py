"""Rules for reductions of ATen along axes, norms and distances, and scans such as cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gensor_gym.dataflow.expressions import Expression
from gensor_gym.dataflow.nodes import Slice
from gensor_gym.frontends.aten.choices import cast, no_number, truth, unequal
from gensor_gym.frontends.aten.maps import power
from gensor_gym.frontends.aten.places import along, take
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import TABLE
from gensor_gym.frontends.covered import covers as _covers

Axes = int | Sequence[int] | None
_Reduces = Callable[[Builder, str, list[int]], str]


def _reduces(*names: str) -> Callable[[_Reduces], _Reduces]:
    """Decorate a function that reduces axes to extent 1, and register it as the rule of ATen's operations `names`.

    The rule removes the reduced axes unless `keepdim`.
    """

    def register(function: _Reduces) -> _Reduces:
        def rule(b: Builder, x: str, axes: Axes = None, keepdim: bool = False, dtype: Any = None) -> str:
            chosen = axes_of(b, x, axes)
            return kept(b, function(b, cast(b, x, dtype), chosen), chosen, keepdim)

        TABLE.update({f"aten.{name}": rule for name in names})
        return function

    return register


@_reduces("mean.dim", "mean.default")
def _mean(b: Builder, x: str, axes: list[int]) -> str:
    return b.mean(x, axes)


@_reduces("sum.dim_IntList", "sum.default")
def _sum(b: Builder, x: str, axes: list[int]) -> str:
    return b.reduce(x, "sum", axes)


@_reduces("prod.default", "prod.dim_int")
def product(b: Builder, x: str, axes: list[int]) -> str:
    """Compute products along axes. The two halves of an axis are multiplied repeatedly; odd last elements follow at the end."""
    for axis in (one % len(b.shapes[x]) for one in axes):
        single = list[str]()
        while (extent := b.shapes[x][axis]) > 1:
            half = extent // 2
            if extent % 2:
                single.append(b.add(Slice(x, axis, extent - 1, extent), "last"))
            x = b.call("multiply", *(b.add(Slice(x, axis, first, first + half), "half") for first in (0, half)))
        for last in single:
            x = b.call("multiply", x, last)
    return x


@_reduces("amax.default", "max.default")
def _amax(b: Builder, x: str, axes: list[int]) -> str:
    return b.reduce(x, "max", axes)


@_reduces("amin.default", "min.default")
def _amin(b: Builder, x: str, axes: list[int]) -> str:
    return b.reduce(x, "min", axes)


@_reduces("any.default", "any.dim", "any.dims")
def _any(b: Builder, x: str, axes: list[int]) -> str:
    return b.reduce(b.map(truth(b, x), "truth"), "max", axes)


@_reduces("all.default", "all.dim", "all.dims")
def _all(b: Builder, x: str, axes: list[int]) -> str:
    return b.reduce(b.map(truth(b, x), "truth"), "min", axes)


@_reduces("logsumexp.default")
def _logsumexp(b: Builder, x: str, axes: list[int]) -> str:
    """Compute log(sum(exp(x))) along axes, with the maximum subtracted if it is finite."""
    top = b.reduce(x, "max", axes)
    top = b.map(of("where", of("less", of("absolute", top), math.inf), top, 0.0), "top")
    return b.call("add", top, of("log", b.reduce(b.call("exp", of("subtract", x, b.repeat(top, b.shapes[x]))), "sum", axes)))


@_covers("var.correction")
def _var(b: Builder, x: str, axes: Axes = None, *, correction: float | None = None, keepdim: bool = False) -> str:
    chosen = axes_of(b, x, axes)
    return kept(b, _spread(b, x, chosen, correction), chosen, keepdim)


@_covers("var_mean.correction")
def _var_mean(
    b: Builder, x: str, axes: Axes = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[str, str]:
    chosen = axes_of(b, x, axes)
    return _var(b, x, axes, correction=correction, keepdim=keepdim), kept(b, b.mean(x, chosen), chosen, keepdim)


def _spread(b: Builder, x: str, axes: list[int], correction: float | None) -> str:
    count = math.prod(b.shapes[x][axis] for axis in axes) - (1 if correction is None else correction)
    if count <= 0:
        raise ValueError(f"a variance of {count} degrees of freedom: expected more than none")
    centred = b.call("subtract", x, b.mean(x, axes))
    return b.call("multiply", b.reduce(b.call("multiply", centred, centred), "sum", axes), 1.0 / count)


@_covers("linalg_vector_norm.default")
def _norm(b: Builder, x: str, order: float = 2.0, axes: Axes = None, keepdim: bool = False, **_: Any) -> str:
    chosen = axes_of(b, x, axes)
    size = b.call("absolute", x)
    if math.isinf(order):
        made = b.reduce(size, "max" if order > 0 else "min", chosen)
    elif order == 0:
        made = b.reduce(b.map(unequal(x, 0.0), "truth"), "sum", chosen)
    elif order == 1:
        made = b.reduce(size, "sum", chosen)
    elif order == 2:
        made = b.call("sqrt", b.reduce(b.call("multiply", x, x), "sum", chosen))
    else:
        made = power(b, b.reduce(power(b, size, order), "sum", chosen), 1.0 / order)
    return kept(b, made, chosen, keepdim)


@_covers("_cdist_forward.default")
def _distances(b: Builder, x: str, y: str, order: float, _: Any = None) -> str:
    """Compute the distances [.., p, r] of each row of x [.., p, m] from each row of y [.., r, m]: the norm of order `order`.

    Order infinity ignores NaN.
    """
    outer, width = np.broadcast_shapes(b.shapes[x][:-2], b.shapes[y][:-2]), b.shapes[x][-1]
    p, r = b.shapes[x][-2], b.shapes[y][-2]
    one, other = b.reshape(x, (*b.shapes[x][:-1], 1, width)), b.reshape(y, (*b.shapes[y][:-2], 1, r, width))
    apart = b.call("subtract", *(b.repeat(each, (*outer, p, r, width)) for each in (one, other)))
    if math.isinf(order):
        apart = b.map(of("where", no_number(apart), 0.0, apart), "apart")
    return _distance(b, apart, order)


@_covers("_pdist_forward.default")
def _distances_within(b: Builder, x: str, order: float = 2.0) -> str:
    pairs = np.triu_indices(b.shapes[x][0], 1)
    return _distance(b, b.call("subtract", *(take(b, x, [0], rows) for rows in pairs)), order)


def _distance(b: Builder, apart: str, order: float) -> str:
    """Compute the norm of the differences `apart` along the last axis.

    Order 0 counts nonzero differences; it is NaN if any is NaN.
    """
    if order == 0:
        counted = of("where", no_number(apart), apart, unequal(apart, 0.0))
        return kept(b, b.reduce(b.map(counted, "unlike"), "sum", [-1]), [len(b.shapes[apart]) - 1], False)
    return _norm(b, apart, order, -1)


@_covers("cumsum.default")
def _cumsum(b: Builder, x: str, axis: int, dtype: Any = None) -> str:
    return _scan(b, cast(b, x, dtype), axis, "add")


@_covers("cumprod.default")
def _cumprod(b: Builder, x: str, axis: int, dtype: Any = None) -> str:
    return _scan(b, cast(b, x, dtype), axis, "multiply")


@_covers("logcumsumexp.default")
def _logcumsumexp(b: Builder, x: str, axis: int) -> str:
    return _scan(b, x, axis, _log_of_both)


def _log_of_both(one: str, other: str) -> Expression:
    """Return the expression of log(exp(one) + exp(other)): the larger number plus a correction.

    Two equal infinities give that infinity.
    """
    least, most = of("minimum", one, other), of("maximum", one, other)
    apart = of("less", of("absolute", of("subtract", least, most)), math.inf)  # the difference of two equal infinities is NaN
    alike = of("where", apart, of("add", most, of("log1p", of("exp", of("subtract", least, most)))), most)
    return of("where", of("at_most", least, most), alike, of("add", one, other))  # NaN if either is NaN


def _scan(b: Builder, x: str, axis: int, function: str | Callable[[str, str], Expression]) -> str:
    """Add a scan along an axis: element i of the result combines elements 0 to i of x by `function`.

    Each step combines elements 1, 2, 4, .. positions apart (Hillis and Steele, Data parallel algorithms, 1986).
    """
    if not b.shapes[x]:
        return x
    rows, back = along(b, x, axis % len(b.shapes[x]))
    places, shift = np.arange(b.shapes[rows][0]), 1
    while shift < len(places):
        before = take(b, rows, [0], np.maximum(places - shift, 0))
        first = b.constant("first", (places < shift).reshape(-1, 1))
        both = of(function, rows, before) if isinstance(function, str) else function(rows, before)
        rows, shift = b.map(of("where", first, rows, both), "scan"), 2 * shift
    return back(rows)


def of_one(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a rule that works along an axis so that it accepts a tensor without axes, as one element along an axis."""

    def of_any(b: Builder, x: str, *arguments: Any, **options: Any) -> Any:
        if b.shapes[x]:
            return rule(b, x, *arguments, **options)
        line = b.reshape(x, (1,))
        b.reads = {**b.reads, line: b.reads[x]}
        made = rule(b, line, *arguments, **options)
        return tuple(b.reshape(one, ()) for one in made) if isinstance(made, tuple) else b.reshape(made, ())

    return of_any


def _scan_of_extreme(sign: str) -> Callable[..., tuple[str, str]]:
    """Make the rule of `cummax` or `cummin` (`sign` is "max" or "min"): the extreme of all elements up to each, and its index.

    Of equal elements the last counts; after a NaN the result stays NaN.
    """

    @of_one
    def rule(b: Builder, x: str, axis: int) -> tuple[str, str]:
        values, back = along(b, x, axis % len(b.shapes[x]))
        numbers, shift = np.arange(b.shapes[values][0]), 1
        places = b.repeat(b.constant("places", numbers.reshape(-1, 1)), b.shapes[values])
        while shift < len(numbers):
            before, place = (take(b, b.dense(one), [0], np.maximum(numbers - shift, 0)) for one in (values, places))
            first = b.constant("first", (numbers < shift).reshape(-1, 1))
            ahead = of("at_most", *((before, values) if sign == "max" else (values, before)))
            number = of("at_most", before, before)  # after a NaN the result stays NaN
            stays = b.map(of("maximum", of("maximum", first, no_number(values)), of("multiply", ahead, number)), "stays")
            values, places = (b.map(of("where", stays, one, other), "scan") for one, other in ((values, before), (places, place)))
            shift *= 2
        return back(values), back(places)

    return rule


TABLE["aten.cummax.default"], TABLE["aten.cummin.default"] = _scan_of_extreme("max"), _scan_of_extreme("min")


def axes_of(b: Builder, x: str, axes: Axes) -> list[int]:
    """Return the numbers of the given axes, counted from 0. None or no axes mean all axes."""
    if not (rank := len(b.shapes[x])):
        return []
    named = [axes] if isinstance(axes, int) else axes or range(rank)
    return [axis % rank for axis in named]


def kept(b: Builder, made: str, axes: Sequence[int], keepdim: bool) -> str:
    """Remove the reduced axes, which have extent 1, from a result, unless `keepdim`."""
    left = [extent for axis, extent in enumerate(b.shapes[made]) if axis not in axes]
    return made if keepdim else b.reshape(made, left)
