"""Casts to data types without kernels: of what only moves on to outputs they are done there, by torch or NumPy."""

from __future__ import annotations

import torch
from torch.fx import Graph

CAST = "aten._to_copy.default"
"""The operation."""
_MOVES = {
    f"aten.{name}"
    for name in (
        "alias.default", "clone.default", "contiguous.default", "detach.default", "expand.default", "flatten.using_ints",
        "permute.default", "reshape.default", "select.int", "slice.Tensor", "squeeze.dim", "squeeze.dims", "t.default",
        "transpose.int", "unsqueeze.default", "view.default", "_unsafe_view.default",
    )
}  # fmt: skip
"""Operations that hand numbers on as they are."""


def name_of(dtype: torch.dtype) -> str:
    """Its name in torch."""
    return str(dtype).removeprefix("torch.")


def casts_of(graph: Graph, computed: frozenset[torch.dtype]) -> dict[str, tuple[str, ...]]:
    """Of nodes that are cast to other types than those kernels compute, and of what moves these: the types, in turn.

    The first one is that of whole numbers or bools, where the node's numbers were of such a type before. What is cast to float64
    and back is as it was.
    """
    found: dict[str, tuple[str, ...]] = {}
    for node in graph.nodes:
        if node.op != "call_function" or len(node.all_input_nodes) != 1:
            continue
        (source,) = node.all_input_nodes
        before = found.get(source.name, ())
        if str(node.target) == CAST:
            was, now = source.meta["val"].dtype, node.meta["val"].dtype
            if before == ("float64",) and now == torch.float32:
                continue
            if before or now not in computed:
                first = before or (() if was == torch.float32 else (name_of(was),))
                found[node.name] = (*first, name_of(now))
        elif before and str(node.target) in _MOVES:
            found[node.name] = before
    return found
