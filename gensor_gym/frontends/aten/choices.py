"""Operations of ATen that compare and choose: masks, which are 0 or 1, one of two tensors, rows by ids, other data types."""

from __future__ import annotations

from typing import Any

import numpy as np

from gensor_gym.dataflow.expressions import Call, Expression
from gensor_gym.dataflow.nodes import Gather
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import TABLE
from gensor_gym.frontends.covered import covers as _covers

Given = str | float | Expression


def _not(x: Given) -> Call:
    return of("subtract", 1.0, x)


def _unequal(x: Given, y: Given) -> Call:
    return of("add", of("less", x, y), of("less", y, x))


_COMPARED = {
    "lt": lambda x, y: of("less", x, y), "gt": lambda x, y: of("less", y, x),
    "le": lambda x, y: _not(of("less", y, x)), "ge": lambda x, y: _not(of("less", x, y)),
    "ne": _unequal, "eq": lambda x, y: _not(_unequal(x, y)),
}  # fmt: skip
"""Of what is no number `le`, `ge` and `eq` say yes, unlike torch's."""
for _name, _function in _COMPARED.items():
    for _kind in ("Tensor", "Scalar"):
        TABLE[f"aten.{_name}.{_kind}"] = lambda b, x, y, name=_name, function=_function: b.map(function(x, y), name)


def _truth(b: Builder, x: Given) -> Given:
    """0 or 1: whether it is another number than 0."""
    return x if isinstance(x, str) and b.reads[x] == "bool" else _unequal(x, 0.0)


@_covers("logical_not.default", "bitwise_not.default")
def _logical_not(b: Builder, x: str) -> str:
    return b.map(_not(_truth(b, x)), "neither")


@_covers("logical_and.default", "bitwise_and.Tensor", "__and__.Tensor")
def _logical_and(b: Builder, x: str, y: str) -> str:
    return b.map(of("multiply", _truth(b, x), _truth(b, y)), "both")


@_covers("logical_or.default", "bitwise_or.Tensor", "__or__.Tensor")
def _logical_or(b: Builder, x: str, y: str) -> str:
    return b.map(of("maximum", _truth(b, x), _truth(b, y)), "either")


@_covers("logical_xor.default", "bitwise_xor.Tensor")
def _logical_xor(b: Builder, x: str, y: str) -> str:
    return b.map(_unequal(_truth(b, x), _truth(b, y)), "unlike")


@_covers("where.self")
def _where(b: Builder, mask: str, x: Given, y: Given) -> str:
    return b.map(of("where", mask, x, y), "where")


def masked(b: Builder, scores: str, mask: str) -> str:
    """Scores of attention with a mask: numbers that are added, or whether each counts."""
    return b.call("where", mask, scores, -np.inf) if b.reads.get(mask) == "bool" else b.call("add", scores, mask)


@_covers("_to_copy.default")
def _to_copy(b: Builder, x: str, dtype: Any = None, **_: Any) -> str:
    was, now = b.reads[x], str(dtype).removeprefix("torch.") if dtype is not None else b.reads[x]
    if now == "bool" and was != "bool":
        return b.map(_unequal(x, 0.0), "truth")
    if was == "float32" and now != "float32":
        raise ValueError(f"{was} to {now}: expected whole numbers to float32")
    return x


@_covers("embedding.default")
def _embedding(b: Builder, table: str, ids: str, *_: Any) -> str:
    return b.add(Gather(table, ids), "rows")


def take(b: Builder, x: str, axis: int, ids: str | np.ndarray) -> str:
    """Of an axis the places that ids name, which may be a constant."""
    if isinstance(ids, np.ndarray):
        ids = b.constant("places", ids)
    rank, axis = len(b.shapes[x]), axis % len(b.shapes[x])
    front = b.transpose(x, (axis, *(other for other in range(rank) if other != axis)))
    made = b.add(Gather(front, ids), "taken")
    wide = len(b.shapes[ids])
    return b.transpose(made, (*range(wide, wide + axis), *range(wide), *range(wide + axis, wide + rank - 1)))


@_covers("index_select.default")
def _index_select(b: Builder, x: str, axis: int, ids: str) -> str:
    return take(b, x, axis, ids)


@_covers("index.Tensor")
def _index(b: Builder, x: str, places: list[str | None]) -> str:
    chosen = [(axis, ids) for axis, ids in enumerate(places) if ids is not None]
    known = [None if not isinstance(ids, str) else b.known(ids) for _, ids in chosen]
    if len(chosen) != 1 or known[0] is None or b.reads[str(chosen[0][1])] == "bool":
        raise ValueError("places along several axes, by a mask or computed at each call: expected constant ones along one axis")
    (axis, _), extent = chosen[0], b.shapes[x][chosen[0][0]]
    return take(b, x, axis, np.where(known[0] < 0, known[0] + extent, known[0]))


@_covers("flip.default")
def _flip(b: Builder, x: str, axes: list[int]) -> str:
    for axis in axes:
        x = take(b, x, axis, np.arange(b.shapes[x][axis])[::-1])
    return x
