"""Rules for matrix products of ATen, and for attention."""

from __future__ import annotations

import math

import numpy as np

from gensor_gym.dataflow.nodes import Gather
from gensor_gym.frontends.aten.choices import masked
from gensor_gym.frontends.aten.norms import softmax
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import TABLE
from gensor_gym.frontends.covered import covers as _covers
from gensor_gym.operators.kinds.linear import batched_gemm, gemm, gemv


@_covers("linear.default")
def linear(b: Builder, x: str, w: str, bias: str | None = None) -> str:
    """Add a linear layer: the product [.., n] of x [.., k] and weights [n, k], plus an optional bias [n]."""
    *outer, k = b.shapes[x]
    m, n = math.prod(outer), b.shapes[w][0]
    if m == 1:
        made = b.contract(gemv(n, k), w, b.reshape(x, (k,)))
    else:
        made = b.contract(gemm(m, n, k), b.reshape(x, (m, k)), b.transpose(w, (1, 0)))
    return b.reshape(made if bias is None else b.call("add", made, bias), (*outer, n))


@_covers("bilinear.default")
def _bilinear(b: Builder, x: str, y: str, w: str, bias: str | None = None) -> str:
    """Add a bilinear layer [.., k] of x [.., i], y [.., j] and weights [k, i, j]: x times the weights, times y, summed over j."""
    (*outer, i), (k, _, j) = b.shapes[x], b.shapes[w]
    m = math.prod(outer)
    half = _mm(b, b.reshape(x, (m, i)), b.reshape(b.dense(b.transpose(w, (1, 0, 2))), (i, k * j)))
    met = b.call("multiply", b.reshape(half, (m, k, j)), b.reshape(y, (m, 1, j)))
    made = b.reshape(b.reduce(met, "sum", [2]), (*outer, k))
    return made if bias is None else b.call("add", made, bias)


@_covers("mv.default", "dot.default")
def _mv(b: Builder, x: str, y: str) -> str:
    return _matmul(b, x, y)


@_covers("mm.default")
def _mm(b: Builder, x: str, y: str) -> str:
    (m, k), n = b.shapes[x], b.shapes[y][1]
    return b.contract(gemm(m, n, k), x, y)


@_covers("addmm.default")
def _addmm(b: Builder, bias: str, x: str, y: str, *, beta: float = 1, alpha: float = 1) -> str:
    return _joined(b, bias, _mm(b, x, y), beta, alpha)


@_covers("baddbmm.default")
def _baddbmm(b: Builder, bias: str, x: str, y: str, *, beta: float = 1, alpha: float = 1) -> str:
    return _joined(b, bias, _bmm(b, x, y), beta, alpha)


@_covers("addbmm.default")
def _addbmm(b: Builder, bias: str, x: str, y: str, *, beta: float = 1, alpha: float = 1) -> str:
    """Compute a bias plus the sum of a batch of products, as one product along all their inner axes."""
    (batch, m, k), n = b.shapes[x], b.shapes[y][2]
    rows = b.reshape(b.dense(b.transpose(x, (1, 0, 2))), (m, batch * k))
    return _joined(b, bias, _mm(b, rows, b.reshape(y, (batch * k, n))), beta, alpha)


def _joined(b: Builder, bias: str, made: str, beta: float, alpha: float) -> str:
    """Compute alpha * made + beta * bias, where `made` is a product. With beta 0 the bias is not read."""
    made = made if alpha == 1 else b.call("multiply", made, alpha)
    return b.call("add", made, bias if beta == 1 else of("multiply", bias, beta)) if beta else made


@_covers("bmm.default")
def _bmm(b: Builder, x: str, y: str) -> str:
    (batch, m, k), n = b.shapes[x], b.shapes[y][2]
    return b.contract(batched_gemm(batch, m, n, k), x, y)


@_covers("matmul.default")
def _matmul(b: Builder, x: str, y: str) -> str:
    if len(b.shapes[x]) == 1:
        made = _matmul(b, b.reshape(x, (1, -1)), y)
        return b.reshape(made, (*b.shapes[made][:-2], *b.shapes[made][-1:]) if len(b.shapes[y]) > 1 else ())
    if len(b.shapes[y]) == 1:
        made = _matmul(b, x, b.reshape(y, (-1, 1)))
        return b.reshape(made, b.shapes[made][:-1])
    (*left, m, k), (*right, _, n) = b.shapes[x], b.shapes[y]
    if not right:
        return b.reshape(_mm(b, b.reshape(x, (-1, k)), y), (*left, m, n))
    outer = np.broadcast_shapes(tuple(left), tuple(right))
    one, other = b.repeat(x, (*outer, m, k)), b.repeat(y, (*outer, k, n))
    return b.reshape(_bmm(b, b.reshape(one, (-1, m, k)), b.reshape(other, (-1, k, n))), (*outer, m, n))


MOST_OF_GROUPS = 1 << 28
"""Largest number of elements of the matrices that a grouped product gathers, one matrix per row."""


def _grouped(b: Builder, x: str, w: str, ends: str) -> str:
    """Multiply each row of x by the matrix of the row's group; the result is 0 for rows after the last group.

    `w` has a matrix for each group. Groups are contiguous rows; group i ends before row `ends[i]`.
    """
    (rows, k), (groups, _, n) = b.shapes[x], b.shapes[w]
    if rows * k * n > MOST_OF_GROUPS:
        raise ValueError(f"matrices of {rows} rows with {rows * k * n} elements: expected at most {MOST_OF_GROUPS}")
    before = of("at_most", b.reshape(ends, (1, groups)), b.constant("row", np.arange(rows).reshape(rows, 1)))
    group = b.reduce(b.map(before, "before"), "sum", [1])
    own = b.map(of("minimum", b.reshape(group, (rows,)), groups - 1.0), "group")
    matrices = b.reshape(b.add(Gather(b.reshape(b.dense(w), (groups, k * n)), own), "matrices"), (rows, k, n))
    made = b.reshape(_bmm(b, b.reshape(x, (rows, 1, k)), matrices), (rows, n))
    return b.map(of("where", of("less", group, float(groups)), made, 0.0), "grouped")


TABLE["transformers.grouped_mm_fallback.default"] = _grouped  # of experts; torch's own operation takes only bfloat16


@_covers("scaled_dot_product_attention.default")
def _attention(
    b: Builder, q: str, k: str, v: str, mask: str | None = None, dropout: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> str:  # fmt: skip
    if dropout:
        raise ValueError("attention with dropout: expected evaluation mode")
    if enable_gqa:
        k, v = (_shared(b, one, b.shapes[q][-3]) for one in (k, v))
    rows, size = b.shapes[q][-2:]
    last = len(b.shapes[k]) - 1
    turned = b.transpose(k, (*range(last - 1), last, last - 1))
    scores = b.call("multiply", _matmul(b, q, turned), 1.0 / math.sqrt(size) if scale is None else scale)
    if is_causal:
        wide = b.shapes[k][-2]
        mask = b.constant("causal", np.where(np.tri(rows, wide, dtype=bool), 0.0, -np.inf))
    if mask is None:
        return _matmul(b, softmax(b, scores, -1), v)
    made = softmax(b, scores := masked(b, scores, mask), -1)
    if not _sees(b, mask):
        top = b.repeat(b.reduce(scores, "max", [-1]), b.shapes[scores])
        made = b.map(of("where", of("at_most", top, -math.inf), 0.0, made), "seen")
    return _matmul(b, made, v)


def _shared(b: Builder, x: str, heads: int) -> str:
    *outer, own, rows, size = b.shapes[x]
    wide = b.repeat(b.reshape(x, (*outer, own, 1, rows, size)), (*outer, own, heads // own, rows, size))
    return b.reshape(wide, (*outer, heads, rows, size))


def _sees(b: Builder, mask: str) -> bool:
    """Return whether a constant mask of attention keeps at least one score in every row.

    If so, no row needs the result 0 of a fully masked row.
    """
    known = b.known(mask)
    counts = known is not None and (known != 0 if b.reads.get(mask) == "bool" else known > -math.inf)
    return bool(np.all(np.any(counts, axis=-1)))
