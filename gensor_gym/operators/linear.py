"""Matrix products and row sums: gemm, batched_gemm, gemv, reduce_sum."""

from __future__ import annotations

from gensor_gym.operators.build import access, arguments, axes
from gensor_gym.operators.checks import PLAIN_TYPES, data_type, integer, tensor
from gensor_gym.operators.types import INPUT, OUTPUT, Operator


def gemm(m: int, n: int, k: int, dtype: str = "float32") -> Operator:
    """Matrix product C[m, n] = sum over k of A[m, k] * B[k, n].

    int8 operands give an int32 result. A bias is per column n.
    """
    sizes = {"m": integer("m", m), "n": integer("n", n), "k": integer("k", k)}
    m, n, k = sizes.values()
    dtype = data_type(dtype)
    loops = axes({"m": m, "n": n}, {"k": k})
    left = access(tensor("A", (m, k), INPUT[dtype]), loops, "m", "k")
    right = access(tensor("B", (k, n), INPUT[dtype]), loops, "k", "n")
    return Operator(
        name="gemm",
        arguments=arguments(sizes, dtype=(dtype, "float32")),
        axes=loops,
        body="multiply_add",
        reads=(left, right),
        write=access(tensor("C", (m, n), OUTPUT[dtype]), loops, "m", "n"),
        dtype=dtype,
        channel_axis=1,
    )


def batched_gemm(b: int, m: int, n: int, k: int, dtype: str = "float32") -> Operator:
    """One matrix product for each batch element: C[b, m, n] = sum over k of A[b, m, k] * B[b, k, n].

    int8 operands give an int32 result. A bias is per column n.
    """
    sizes = {"b": integer("b", b), "m": integer("m", m), "n": integer("n", n), "k": integer("k", k)}
    b, m, n, k = sizes.values()
    dtype = data_type(dtype)
    loops = axes({"b": b, "m": m, "n": n}, {"k": k})
    left = access(tensor("A", (b, m, k), INPUT[dtype]), loops, "b", "m", "k")
    right = access(tensor("B", (b, k, n), INPUT[dtype]), loops, "b", "k", "n")
    return Operator(
        name="batched_gemm",
        arguments=arguments(sizes, dtype=(dtype, "float32")),
        axes=loops,
        body="multiply_add",
        reads=(left, right),
        write=access(tensor("C", (b, m, n), OUTPUT[dtype]), loops, "b", "m", "n"),
        dtype=dtype,
        channel_axis=2,
    )


def gemv(m: int, k: int, dtype: str = "float32") -> Operator:
    """Matrix times vector: y[m] = sum over k of A[m, k] * x[k].

    int8 operands give an int32 result. A bias is per row m.
    """
    sizes = {"m": integer("m", m), "k": integer("k", k)}
    m, k = sizes.values()
    dtype = data_type(dtype)
    loops = axes({"m": m}, {"k": k})
    return Operator(
        name="gemv",
        arguments=arguments(sizes, dtype=(dtype, "float32")),
        axes=loops,
        body="multiply_add",
        reads=(access(tensor("A", (m, k), INPUT[dtype]), loops, "m", "k"), access(tensor("x", (k,), INPUT[dtype]), loops, "k")),
        write=access(tensor("y", (m,), OUTPUT[dtype]), loops, "m"),
        dtype=dtype,
        channel_axis=0,
    )


def reduce_sum(m: int, k: int, dtype: str = "float32") -> Operator:
    """Sum of each row: y[m] = sum over k of x[m, k].

    int8 rows are summed in int32 and the result is int32. A bias is per row m.
    """
    sizes = {"m": integer("m", m), "k": integer("k", k)}
    m, k = sizes.values()
    dtype = data_type(dtype, PLAIN_TYPES)
    loops = axes({"m": m}, {"k": k})
    return Operator(
        name="reduce_sum",
        arguments=arguments(sizes, dtype=(dtype, "float32")),
        axes=loops,
        body="sum",
        reads=(access(tensor("x", (m, k), dtype), loops, "m", "k"),),
        write=access(tensor("y", (m,), OUTPUT[dtype]), loops, "m"),
        dtype=dtype,
        channel_axis=0,
    )
