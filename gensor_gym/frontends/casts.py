"""Casts of outputs, without kernels: if no operation computes with the cast value, torch or NumPy cast the output."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

CAST = "aten._to_copy.default"
"""Name of ATen's operation that casts a tensor."""
MOVES = {
    f"aten.{name}"
    for name in (
        "alias.default", "clone.default", "contiguous.default", "detach.default", "expand.default", "flatten.using_ints",
        "permute.default", "reshape.default", "select.int", "slice.Tensor", "squeeze.dim", "squeeze.dims", "t.default",
        "transpose.int", "unsqueeze.default", "view.default", "_unsafe_view.default",
    )
}  # fmt: skip
"""Names of ATen's operations that move or view elements without changing them."""


def name_of(dtype: Any) -> str:
    """Return the name of a data type of torch, such as `float32`."""
    return str(dtype).removeprefix("torch.")


def casts_of(graph: Any, computed: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Find the casts in torch's graph that kernels cannot compute. Return, by a node's name, the types of its casts in order.

    `computed` are the types that kernels compute. A node that only rearranges a cast value has the same casts. The first type is
    that of the value before its casts, unless it was float32. A value cast from float32 to float64 and back counts as not cast.
    Kernels compute no cast to complex numbers that are returned at once.
    """
    found: dict[str, tuple[str, ...]] = {}
    for node in graph.nodes:
        if node.op != "call_function" or len(node.all_input_nodes) != 1:
            continue
        (source,) = node.all_input_nodes
        before = found.get(source.name, ())
        if str(node.target) == CAST:
            was, now = (name_of(one.meta["val"].dtype) for one in (source, node))
            if was.startswith("complex"):
                continue  # kernels cast complex numbers, to types that they compute
            if before == ("float64",) and now == "float32":
                found[node.name] = ()
            elif before or now not in computed or now.startswith("complex") and all(user.op == "output" for user in node.users):
                found[node.name] = (*(before or (() if was == "float32" else (was,))), now)
        elif before and str(node.target) in MOVES:
            found[node.name] = before
    return found
