"""Casts to data types without kernels: values that only move on to outputs are cast there, by torch or NumPy."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

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


def name_of(dtype: Any) -> str:
    """The name of a data type of torch."""
    return str(dtype).removeprefix("torch.")


def casts_of(graph: Any, computed: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Casts, in order, of nodes of torch's graph to types that kernels do not compute, and of moves of such nodes.

    The first is that of whole numbers or bools, if the node's numbers had such a type. A cast to float64 and back has none.
    """
    found: dict[str, tuple[str, ...]] = {}
    for node in graph.nodes:
        if node.op != "call_function" or len(node.all_input_nodes) != 1:
            continue
        (source,) = node.all_input_nodes
        before = found.get(source.name, ())
        if str(node.target) == CAST:
            was, now = (name_of(one.meta["val"].dtype) for one in (source, node))
            if before == ("float64",) and now == "float32":
                found[node.name] = ()
            elif before or now not in computed:
                found[node.name] = (*(before or (() if was == "float32" else (was,))), now)
        elif before and str(node.target) in _MOVES:
            found[node.name] = before
    return found
