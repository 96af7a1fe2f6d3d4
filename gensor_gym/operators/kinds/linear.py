"""Matrix products and row sums: gemm, batched_gemm, gemv, reduce_sum."""

from __future__ import annotations

from gensor_gym.operators.build import plain
from gensor_gym.operators.checks import one_of
from gensor_gym.operators.images import MATRICES, in_order, matrix_order
from gensor_gym.operators.registry import register_operator
from gensor_gym.operators.types import Operator


@register_operator(
    lambda op, a, b: a @ in_order(b, MATRICES[0], matrix_order(op)),
    torch=lambda torch, op: lambda a, b: torch.mm(a, in_order(b, MATRICES[0], matrix_order(op))),
)
def gemm(m: int, n: int, k: int, dtype: str = "float32", weights: str = "kn") -> Operator:
    """Make a matrix product C[m, n] = sum over k of A[m, k] * B[k, n].

    int8 operands give an int32 result, float8_e4m3fn operands a bfloat16 result. A bias has one element per column n. With
    `weights="nk"` B is [n, k] in memory, as in torch's layers.
    """
    order = one_of("weights", weights, MATRICES)
    return plain(
        "gemm", {"m": m, "n": n, "k": k}, dtype, {"A": "mk", "B": order}, ("C", "mn"), weights=(order, MATRICES[0])
    )  # fmt: skip


@register_operator(lambda op, a, b: a @ b, torch=lambda torch, op: torch.bmm)
def batched_gemm(b: int, m: int, n: int, k: int, dtype: str = "float32") -> Operator:
    """Make a batch of matrix products C[b, m, n] = sum over k of A[b, m, k] * B[b, k, n].

    int8 operands give an int32 result, float8_e4m3fn operands a bfloat16 result. A bias has one element per column n.
    """
    return plain("batched_gemm", {"b": b, "m": m, "n": n, "k": k}, dtype, {"A": "bmk", "B": "bkn"}, ("C", "bmn"))


@register_operator(lambda op, a, x: a @ x, torch=lambda torch, op: torch.mv)
def gemv(m: int, k: int, dtype: str = "float32") -> Operator:
    """Make a product of a matrix and a vector, y[m] = sum over k of A[m, k] * x[k].

    int8 operands give an int32 result, float8_e4m3fn operands a bfloat16 result. A bias has one element per row m.
    """
    return plain("gemv", {"m": m, "k": k}, dtype, {"A": "mk", "x": "k"}, ("y", "m"))


@register_operator(lambda op, x: x.sum(axis=1))
def reduce_sum(m: int, k: int, dtype: str = "float32") -> Operator:
    """Make the sum of each row, y[m] = sum over k of x[m, k].

    int8 rows are summed in int32 and the result is int32. A bias has one element per row m.
    """
    return plain("reduce_sum", {"m": m, "k": k}, dtype, {"x": "mk"}, ("y", "m"), "sum")
