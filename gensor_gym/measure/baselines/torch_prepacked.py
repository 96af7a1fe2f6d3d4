"""oneDNN with weights in its own layout, as torch's compiler calls it for a frozen model: the baseline of prepacked kernels.

The weights are reordered once, before timing. A convolution's result stays in the layout that oneDNN chose (channels last), which
saves a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gensor_gym.operators.images import names_orders
from gensor_gym.operators.types import Operator

DTYPES = ("float32", "bfloat16")


def prepacked_function(op: Operator, x: list[Any]) -> Callable[[], Any]:
    """Return a function that calls oneDNN with prepacked weights: gemm or conv2d of `DTYPES`, optional bias, relu or gelu.

    ValueError for any other operator, or if oneDNN has no kernel of the type for this processor.
    """
    stages = [stage.name for stage in op.epilogue]
    bias = x[2] if stages[:1] == ["bias"] else None
    rest = stages[1:] if bias is not None else stages
    known_order = op.name in ("gemm", "conv2d") and not names_orders(op)
    if not known_order or op.dtype not in DTYPES or rest not in ([], ["relu"], ["gelu"]):
        known = " or ".join(DTYPES)
        raise ValueError(f"no prepacked torch baseline for {op}; there is one for gemm and conv2d of {known}, +bias, +relu|gelu")
    after: tuple[str, list[Any], str] = (rest[0] if rest else "none", [], "none" if rest == ["gelu"] else "")
    try:
        return _linear(x, bias, after) if op.name == "gemm" else _convolution(op, x, bias, after)
    except RuntimeError as error:  # bfloat16 on a processor for which oneDNN has no such kernel
        raise ValueError(f"no prepacked torch baseline for {op}: {error}") from error


def _linear(x: list[Any], bias: Any, after: tuple[str, list[Any], str]) -> Callable[[], Any]:
    """Return a function that computes a matrix product by oneDNN from weights that are reordered now.

    oneDNN takes B transposed, and chooses B's layout for the number of rows of A.
    """
    import torch

    call = torch.ops.mkldnn._linear_pointwise
    weights = torch.ops.mkldnn._reorder_linear_weight(x[1].t().contiguous(), x[0].shape[0])
    return lambda: call(x[0], weights, bias, *after)


def _convolution(op: Operator, x: list[Any], bias: Any, after: tuple[str, list[Any], str]) -> Callable[[], Any]:
    import torch

    sizes: dict[str, Any] = dict(op.arguments)
    padding, stride, dilation = (_pair(sizes.get(name, low)) for name, low in (("padding", 0), ("stride", 1), ("dilation", 1)))
    window = (padding, stride, dilation, sizes.get("groups", 1))
    call = torch.ops.mkldnn._convolution_pointwise
    weights = torch.ops.mkldnn._reorder_convolution_weight(x[1], *window, list(x[0].shape))
    return lambda: call(x[0], weights, bias, *window, *after)


def _pair(value: Any) -> list[int]:
    """Return [height, width] from one integer or a pair."""
    return [value, value] if isinstance(value, int) else list(value)
