"""Rules for operations of ATen that rank elements along an axis: maxima with indices, sort, median, mode, buckets, top k."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gensor_gym.dataflow.expressions import Call
from gensor_gym.dataflow.nodes import Concat, Slice
from gensor_gym.frontends.aten.choices import Given, equal, neither, no_number
from gensor_gym.frontends.aten.maps import floor
from gensor_gym.frontends.aten.places import MOST_PLACES, places_along
from gensor_gym.frontends.aten.reductions import kept, of_one
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import TABLE
from gensor_gym.frontends.covered import covers as _covers

MOST_SORTED = 128
"""Largest number of elements of a sorted axis, because all pairs of elements are compared."""


def _place(b: Builder, x: str, top: str, axis: int, gone: str | None = None) -> str:
    """Compute the first index along an axis at which x is at least `top`, or is NaN, and at which the mask `gone` is 0."""
    behind, there = float(b.shapes[x][axis]), of("maximum", of("at_most", b.repeat(top, b.shapes[x]), x), no_number(x))
    place = of("where", there, places_along(b, x, axis), behind)
    return b.reduce(b.map(place if gone is None else of("where", gone, behind, place), "candidates"), "min", [axis])


def _extreme(turned: bool) -> Callable[..., tuple[str, str]]:
    @of_one
    def rule(b: Builder, x: str, axis: int, keepdim: bool = False) -> tuple[str, str]:
        axis %= len(b.shapes[x])
        given = b.turned(x) if turned else x
        top = b.reduce(given, "max", [axis])
        place = _place(b, given, top, axis)
        return kept(b, b.turned(top) if turned else top, [axis], keepdim), kept(b, place, [axis], keepdim)

    return rule


def _place_of_extreme(turned: bool) -> Callable[..., str]:
    def rule(b: Builder, x: str, axis: int | None = None, keepdim: bool = False) -> str:
        if axis is None:
            x, axis = b.reshape(x, (-1,)), 0
        return _extreme(turned)(b, x, axis, keepdim)[1]

    return rule


TABLE["aten.max.dim"], TABLE["aten.min.dim"] = _extreme(turned=False), _extreme(turned=True)
TABLE["aten.argmax.default"], TABLE["aten.argmin.default"] = _place_of_extreme(turned=False), _place_of_extreme(turned=True)


def _before(one: Given, other: Given) -> Call:
    """Return the expression that is 1 if `one` is smaller than `other`, else 0. NaN counts as larger than all numbers."""
    return of("multiply", of("at_most", one, one), neither(of("at_most", other, one)))


@_covers("sort.default")
@of_one
def _sort(b: Builder, x: str, axis: int = -1, descending: bool = False) -> tuple[str, str]:
    """Sort x along an axis. Return the names of (sorted elements, their indices in x).

    An element's position is the number of elements that come before it; equal elements keep their order.
    """
    axis %= len(b.shapes[x])
    rank, extent = len(b.shapes[x]), b.shapes[x][axis]
    if extent > MOST_SORTED:
        raise ValueError(f"{extent} elements in order: expected at most {MOST_SORTED} along the axis")
    last = [*(other for other in range(rank) if other != axis), axis]
    rows = b.transpose(x, last)
    outer = b.shapes[rows][:-1]
    one, other = (b.repeat(b.reshape(rows, (*outer, *pair)), (*outer, extent, extent)) for pair in ((extent, 1), (1, extent)))
    less, more = (_before(one, other), _before(other, one))[:: -1 if descending else 1]
    earlier = b.constant("earlier", np.tri(extent, k=-1))
    before = b.map(of("maximum", more, of("multiply", earlier, neither(less))), "before")
    ranks = b.reshape(b.reduce(before, "sum", [-1]), (*outer, 1, extent))
    here = equal(b.constant("rank", np.arange(extent).reshape(extent, 1)), ranks)
    places = b.constant("places", np.arange(extent))
    made = (b.reduce(b.map(of("where", here, value, 0.0), "placed"), "sum", [-1]) for value in (other, places))
    return tuple(b.transpose(b.reshape(part, (*outer, extent)), np.argsort(last).tolist()) for part in made)  # type: ignore[return-value]


def _median(b: Builder, x: str, axis: int, keepdim: bool, ignoring: bool) -> tuple[str, ...]:
    """Compute the median along an axis and its index: the lower of two middle elements, NaN if NaN occurs and is not ignored.

    If NaN is ignored (`ignoring`), float32 has no index, because torch's index for a row of NaN depends on its sorting algorithm.
    """
    axis %= len(b.shapes[x])
    extent = b.shapes[x][axis]
    count = b.reduce(b.map(neither(no_number(x)), "number"), "sum", [axis])
    behind = b.map(of("subtract", float(extent), count), "none")
    middle = floor(of("multiply", 0.5, of("subtract", count, 1.0)))
    rank = of("maximum", middle, 0.0) if ignoring else of("where", behind, count, middle)
    here = b.map(equal(places_along(b, x, axis), b.map(rank, "middle")), "middle")
    made = [b.reduce(b.map(of("where", here, one, 0.0), "there"), "sum", [axis]) for one in _sort(b, x, axis)]
    known = made[:1] if ignoring and b.reads.get(x) == "float32" else made
    return tuple(kept(b, one, [axis], keepdim) for one in known)


def _medians(ignoring: bool) -> tuple[Callable[..., tuple[str, ...]], Callable[..., str]]:
    @of_one
    def along_axis(b: Builder, x: str, axis: int, keepdim: bool = False) -> tuple[str, ...]:
        return _median(b, x, axis, keepdim, ignoring)

    return along_axis, lambda b, x: _median(b, b.reshape(x, (-1,)), 0, False, ignoring)[0]


TABLE["aten.median.dim"], TABLE["aten.median.default"] = _medians(ignoring=False)
TABLE["aten.nanmedian.dim"], TABLE["aten.nanmedian.default"] = _medians(ignoring=True)


_MOST_STABLE = 16
"""Largest number of elements for which `std::sort` of libstdc++, which torch uses, is stable."""


@_covers("mode.default")
@of_one
def _mode(b: Builder, x: str, axis: int = -1, keepdim: bool = False) -> tuple[str, ...]:
    """Compute the least of the most frequent elements along an axis, and its last index.

    No index is returned for more elements than `_MOST_STABLE`. ValueError for float32.
    """
    axis %= len(b.shapes[x])
    if b.reads[x] == "float32":
        raise ValueError("the most frequent of float32, of which NaN leaves no order: expected whole numbers or bools")
    last = [*(other for other in range(len(b.shapes[x])) if other != axis), axis]
    rows = b.transpose(x, last)
    *outer, extent = b.shapes[rows]
    if extent > MOST_SORTED:
        raise ValueError(f"{extent} elements counted: expected at most {MOST_SORTED} along the axis")
    one, other = (b.repeat(b.reshape(rows, (*outer, *pair)), (*outer, extent, extent)) for pair in ((extent, 1), (1, extent)))
    count = b.reshape(b.reduce(b.map(equal(one, other), "alike"), "sum", [-1]), (*outer, extent))
    often = equal(count, b.repeat(b.reduce(count, "max", [-1]), b.shapes[count]))
    least = b.reduce(b.map(of("where", often, rows, np.inf), "often"), "min", [-1])
    here = equal(rows, b.repeat(least, b.shapes[rows]))
    place = b.reduce(b.map(of("where", here, places_along(b, rows, len(outer)), -1.0), "places"), "max", [-1])
    found = (least, place) if extent <= _MOST_STABLE else (least,)
    return tuple(kept(b, b.transpose(made, np.argsort(last).tolist()), [axis], keepdim) for made in found)


MOST_LIMITS = 4096
"""Largest number of limits of buckets, because each number is compared with each limit."""


@_covers("bucketize.Tensor")
def _bucketize(b: Builder, x: str, limits: str, *, out_int32: bool = False, right: bool = False) -> str:
    """Count, for each number of x, how many of the `limits` are below it. With `right`, equal limits count too.

    NaN is above all limits.
    """
    if (count := b.shapes[limits][0]) > MOST_LIMITS:
        raise ValueError(f"{count} limits of buckets: expected at most {MOST_LIMITS}")
    one = b.reshape(x, (*b.shapes[x], 1))
    behind = of("less", one, limits) if right else of("at_most", one, limits)
    return b.reshape(b.reduce(b.map(neither(behind), "before"), "sum", [-1]), b.shapes[x])


@_covers("searchsorted.Tensor")
def _searchsorted(
    b: Builder, limits: str, x: str, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: str | None = None,
) -> str:  # fmt: skip
    if len(b.shapes[limits]) != 1 or sorter is not None:
        raise ValueError(f"places among limits of shape {list(b.shapes[limits])}: expected one axis, in order")
    return _bucketize(b, x, limits, right=right or side == "right")


@_covers("histc.default")
def _histc(b: Builder, x: str, bins: int = 100, least: float = 0, most: float = 0) -> str:
    """Count the elements of x in each of `bins` bins of equal width. Elements outside `least` to `most` are not counted."""
    if not least < most or bins > MOST_LIMITS:
        raise ValueError(f"{bins} bins from {least} to {most}: expected at most {MOST_LIMITS}, and ends that are known ahead")
    row, ends = b.reshape(x, (1, -1)), (most - least) * np.arange(bins + 1).reshape(-1, 1)
    far = of("multiply", of("subtract", row, least), bins)  # a quotient would round
    behind = of("less", far, b.constant("last", np.append(ends[1:-1], np.inf).reshape(bins, 1)))  # the last has an end
    here = of("multiply", of("at_most", b.constant("first", ends[:-1]), far), of("multiply", behind, of("at_most", row, most)))
    return b.reshape(b.reduce(b.map(here, "here"), "sum", [1]), (bins,))


@_covers("sort.stable")
def _sort_stable(b: Builder, x: str, *, stable: bool = True, dim: int = -1, descending: bool = False) -> tuple[str, str]:
    return _sort(b, x, dim, descending)


@_covers("topk.default")
@of_one
def _topk(b: Builder, x: str, count: int, axis: int = -1, largest: bool = True, *_: bool) -> tuple[str, str]:
    """Select the `count` largest or smallest elements along an axis. Return the names of (elements, their indices).

    They are selected one by one, and each is masked for the next; or a short axis is sorted.
    """
    axis %= len(b.shapes[x])
    if count and (count > MOST_PLACES or not largest) and b.shapes[x][axis] <= MOST_SORTED:
        return tuple(b.add(Slice(one, axis, 0, count), "ranked") for one in _sort(b, x, axis, largest))  # type: ignore[return-value]
    if not 0 < count <= MOST_PLACES:
        raise ValueError(f"the {count} largest: expected 1 to {MOST_PLACES}, or at most {MOST_SORTED} elements along the axis")
    # NaN is larger than all numbers, so it comes last among the smallest.
    given, gone = x if largest else b.map(of("where", no_number(x), -np.inf, b.turned(x)), "turned"), None
    tops, found = list[str](), list[str]()
    for number in range(count):
        left = given if gone is None else b.call("where", gone, -np.inf, given)
        top = b.reduce(left, "max", [axis])
        found.append(_place(b, given, top, axis, gone))
        here = equal(places_along(b, x, axis), found[-1])
        tops.append(top if largest else b.reduce(b.map(of("where", here, x, 0.0), "there"), "sum", [axis]))
        if number + 1 < count:
            gone = b.map(here if gone is None else of("maximum", gone, here), "gone")
            gone = b.repeat(gone, b.shapes[x])
    top, places = (one[0] if count == 1 else b.add(Concat(tuple(one), axis), "ranked") for one in (tops, found))
    return top, places
