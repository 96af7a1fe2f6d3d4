"""Operations of ATen as nodes: name -> function of a builder and the operation's own arguments, values by name.

What an operation does is said by torch's documentation of it. ValueError names an argument that has no kernels here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import TABLE, Rule
from gensor_gym.frontends.covered import covers as _covers
from gensor_gym.operators.kinds.convolution import conv2d, depthwise_conv2d
from gensor_gym.operators.kinds.linear import batched_gemm, gemm, gemv
from gensor_gym.operators.kinds.pooling import avg_pool2d, max_pool2d


def _pair(given: int | Sequence[int]) -> tuple[int, int]:
    """Height and width of what may be one number."""
    return (given, given) if isinstance(given, int) else (given[0], given[-1])


@_covers("conv2d.default")
def _conv2d(
    b: Builder, x: str, w: str, bias: str | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> str:
    (n, c, height, width), (k, _, r, s) = b.shapes[x], b.shapes[w]
    sizes = dict(n=n, c=c, h=height, w=width, r=r, s=s, stride=_pair(stride), padding=_pair(padding))
    if groups == c == k and _pair(dilation) == (1, 1):
        made = b.contract(depthwise_conv2d(**sizes), x, w)  # type: ignore[arg-type]
    else:
        made = b.contract(conv2d(**sizes, k=k, dilation=_pair(dilation), groups=groups), x, w)  # type: ignore[arg-type]
    return made if bias is None else b.call("add", made, b.reshape(bias, (k, 1, 1)))


@_covers("convolution.default")
def _convolution(
    b: Builder, x: str, w: str, bias: str | None, stride: Any, padding: Any, dilation: Any, transposed: bool, _: Any, groups: int
) -> str:
    if transposed or len(b.shapes[x]) != 4:
        raise ValueError("a convolution that is transposed or not two-dimensional: expected a plain one of images")
    return _conv2d(b, x, w, bias, stride, padding, dilation, groups)


@_covers("batch_norm.default")
def _batch_norm(
    b: Builder, x: str, w: str | None, bias: str | None, mean: str, var: str, training: bool, momentum: float, eps: float, *_: Any
) -> str:
    if training:
        raise ValueError("statistics of the batch: expected a normalisation by running ones, as in evaluation mode")
    factor = b.call("rsqrt", of("add", var, eps))
    factor = factor if w is None else b.call("multiply", factor, w)
    less = b.call("multiply", mean, factor)
    addend = b.call("negative", less) if bias is None else b.call("subtract", bias, less)
    per_channel = (b.shapes[mean][0], *[1] * (len(b.shapes[x]) - 2))
    return b.call("add", b.call("multiply", x, b.reshape(factor, per_channel)), b.reshape(addend, per_channel))


@_covers("_native_batch_norm_legit_no_training.default")
def _native_batch_norm(
    b: Builder, x: str, w: str | None, bias: str | None, mean: str, var: str, momentum: float, eps: float
) -> tuple[str]:
    return (_batch_norm(b, x, w, bias, mean, var, False, momentum, eps),)


@_covers("linear.default")
def _linear(b: Builder, x: str, w: str, bias: str | None = None) -> str:
    *outer, k = b.shapes[x]
    m, n = math.prod(outer), b.shapes[w][0]
    if m == 1:
        made = b.contract(gemv(n, k), w, b.reshape(x, (k,)))
    else:
        made = b.contract(gemm(m, n, k), b.reshape(x, (m, k)), b.transpose(w, (1, 0)))
    return b.reshape(made if bias is None else b.call("add", made, bias), (*outer, n))


@_covers("mm.default")
def _mm(b: Builder, x: str, y: str) -> str:
    (m, k), n = b.shapes[x], b.shapes[y][1]
    return b.contract(gemm(m, n, k), x, y)


@_covers("addmm.default")
def _addmm(b: Builder, bias: str, x: str, y: str) -> str:
    return b.call("add", _mm(b, x, y), bias)


@_covers("bmm.default")
def _bmm(b: Builder, x: str, y: str) -> str:
    (batch, m, k), n = b.shapes[x], b.shapes[y][2]
    return b.contract(batched_gemm(batch, m, n, k), x, y)


@_covers("matmul.default")
def _matmul(b: Builder, x: str, y: str) -> str:
    if len(b.shapes[x]) < 2 or len(b.shapes[y]) < 2:
        raise ValueError(f"a product of shapes {b.shapes[x]} and {b.shapes[y]}: expected at least two axes each")
    (*left, m, k), (*right, _, n) = b.shapes[x], b.shapes[y]
    if not right:
        return b.reshape(_mm(b, b.reshape(x, (-1, k)), y), (*left, m, n))
    outer = np.broadcast_shapes(tuple(left), tuple(right))
    one, other = b.repeat(x, (*outer, m, k)), b.repeat(y, (*outer, k, n))
    return b.reshape(_bmm(b, b.reshape(one, (-1, m, k)), b.reshape(other, (-1, k, n))), (*outer, m, n))


@_covers("scaled_dot_product_attention.default")
def _attention(
    b: Builder, q: str, k: str, v: str, mask: str | None = None, dropout: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> str:  # fmt: skip
    if dropout or enable_gqa:
        raise ValueError("attention with dropout or grouped queries: expected neither")
    *outer, rows, size = b.shapes[q]
    last = len(outer) + 1
    turned = b.transpose(k, (*range(last - 1), last, last - 1))
    scores = b.call("multiply", _matmul(b, q, turned), 1.0 / math.sqrt(size) if scale is None else scale)
    if is_causal:
        wide = b.shapes[k][-2]
        mask = b.constant("causal", np.where(np.tri(rows, wide, dtype=bool), 0.0, -np.inf))
    scores = scores if mask is None else b.call("add", scores, mask)
    return _matmul(b, _softmax(b, scores, -1), v)


@_covers("softmax.int", "_softmax.default")
def _softmax(b: Builder, x: str, axis: int, _: Any = None) -> str:
    powers = b.call("exp", of("subtract", x, b.repeat(b.reduce(x, "max", [axis]), b.shapes[x])))
    return b.call("divide", powers, b.repeat(b.reduce(powers, "sum", [axis]), b.shapes[x]))


@_covers("layer_norm.default")
def _layer_norm(
    b: Builder, x: str, over: Sequence[int], w: str | None = None, bias: str | None = None, eps: float = 1e-5, *_: Any
) -> str:
    axes = range(len(b.shapes[x]) - len(over), len(b.shapes[x]))
    centred = b.call("subtract", x, b.mean(x, axes))
    factor = b.call("rsqrt", of("add", b.mean(b.call("multiply", centred, centred), axes), eps))
    made = b.call("multiply", centred, factor)
    made = made if w is None else b.call("multiply", made, w)
    return made if bias is None else b.call("add", made, bias)


@_covers("native_layer_norm.default")
def _native_layer_norm(b: Builder, x: str, over: Sequence[int], w: str | None, bias: str | None, eps: float) -> tuple[str]:
    return (_layer_norm(b, x, over, w, bias, eps),)


@_covers("max_pool2d.default")
def _max_pool2d(
    b: Builder, x: str, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> str:
    n, c, height, width = b.shapes[x]
    if ceil_mode or _pair(dilation) != (1, 1):
        raise ValueError("pooling with dilation or rounded up: expected neither")
    r, s = _pair(size)
    return b.contract(max_pool2d(n, c, height, width, r, s, _pair(stride or size), _pair(padding)), x)


@_covers("max_pool2d_with_indices.default")
def _max_pool2d_with_indices(b: Builder, *arguments: Any) -> tuple[str]:
    return (_max_pool2d(b, *arguments),)


@_covers("avg_pool2d.default")
def _avg_pool2d(
    b: Builder, x: str, size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> str:  # fmt: skip
    n, c, height, width = b.shapes[x]
    if ceil_mode or divisor_override or (_pair(padding) != (0, 0) and not count_include_pad):
        raise ValueError("a mean rounded up, with a divisor of its own or without what is padded: expected none of these")
    r, s = _pair(size)
    return b.contract(avg_pool2d(n, c, height, width, r, s, _pair(stride or size), _pair(padding)), x)


@_covers("adaptive_avg_pool2d.default", "_adaptive_avg_pool2d.default")
def _adaptive_avg_pool2d(b: Builder, x: str, to: Any) -> str:
    n, c, height, width = b.shapes[x]
    p, q = _pair(to)
    if (p, q) == (1, 1):
        return b.mean(x, (2, 3))
    if height % p or width % q:
        raise ValueError(f"windows of {height} x {width} to {p} x {q}: expected whole ones of one size")
    window = height // p, width // q
    return b.contract(avg_pool2d(n, c, height, width, *window, window), x)


@_covers("mean.dim")
def _mean(b: Builder, x: str, axes: Sequence[int] | None, keepdim: bool = False, **_: Any) -> str:
    chosen = _axes(b, x, axes)
    return _kept(b, b.mean(x, chosen), chosen, keepdim)


@_covers("sum.dim_IntList")
def _sum(b: Builder, x: str, axes: Sequence[int] | None, keepdim: bool = False, **_: Any) -> str:
    chosen = _axes(b, x, axes)
    return _kept(b, b.reduce(x, "sum", chosen), chosen, keepdim)


@_covers("amax.default")
def _amax(b: Builder, x: str, axes: Sequence[int] = (), keepdim: bool = False) -> str:
    chosen = _axes(b, x, axes)
    return _kept(b, b.reduce(x, "max", chosen), chosen, keepdim)


def _axes(b: Builder, x: str, axes: Sequence[int] | None) -> list[int]:
    """All where none is named."""
    return [axis % len(b.shapes[x]) for axis in axes or range(len(b.shapes[x]))]


def _kept(b: Builder, made: str, axes: Sequence[int], keepdim: bool) -> str:
    left = [extent for axis, extent in enumerate(b.shapes[made]) if axis not in axes]
    return made if keepdim else b.reshape(made, left)


def _maps(name: str, expression: Callable[..., Any]) -> None:
    """An elementwise operation: its expression of what it is given."""
    TABLE[f"aten.{name}"] = lambda b, *given: b.map(expression(*given), name.partition(".")[0].strip("_"))


def _scaled_sum(sign: str) -> Rule:
    def rule(b: Builder, x: str | float, y: str | float, alpha: float = 1) -> str:
        return b.call(sign, x, y if alpha == 1 else of("multiply", y, alpha))

    return rule


for _name in ("add", "sub"):
    for _kind in ("Tensor", "Scalar"):
        TABLE[f"aten.{_name}.{_kind}"] = _scaled_sum("subtract" if _name == "sub" else "add")
for _name, _function in {"mul": "multiply", "div": "divide"}.items():
    for _kind in ("Tensor", "Scalar"):
        TABLE[f"aten.{_name}.{_kind}"] = lambda b, x, y, function=_function: b.call(function, x, y)
for _name, _function in {"neg": "negative", "abs": "absolute"}.items():
    _maps(f"{_name}.default", lambda x, function=_function: of(function, x))
for _name in ("exp", "log", "sqrt", "rsqrt", "tanh", "erf"):
    _maps(f"{_name}.default", lambda x, function=_name: of(function, x))
for _name in ("maximum", "minimum"):
    _maps(f"{_name}.default", lambda x, y, function=_name: of(function, x, y))


def _between(x: Any, least: float | None = None, most: float | None = None) -> Any:
    """Numbers below and above become the nearest."""
    made = x if least is None else of("maximum", x, least)
    return made if most is None else of("minimum", made, most)


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":  # Hendrycks and Gimpel, arXiv 1606.08415
        cube = of("multiply", 0.044715, of("multiply", x, of("multiply", x, x)))
        inner = of("tanh", of("multiply", math.sqrt(2 / math.pi), of("add", x, cube)))
    else:
        inner = of("erf", of("multiply", x, math.sqrt(0.5)))
    return of("multiply", of("multiply", 0.5, x), of("add", 1.0, inner))


def _sigmoid(x: Any) -> Any:
    return of("divide", 1.0, of("add", 1.0, of("exp", of("negative", x))))


def _hardsigmoid(x: Any) -> Any:
    return of("multiply", _between(of("add", x, 3.0), 0.0, 6.0), 1.0 / 6.0)


def _power(x: Any, exponent: float) -> Any:
    known: dict[float, Callable[[], Any]] = {
        1.0: lambda: x, 2.0: lambda: of("multiply", x, x), 3.0: lambda: of("multiply", x, of("multiply", x, x)),
        0.5: lambda: of("sqrt", x), -0.5: lambda: of("rsqrt", x), -1.0: lambda: of("divide", 1.0, x),
    }  # fmt: skip
    if exponent not in known:
        raise ValueError(f"a power of {exponent}: expected one of {', '.join(map(str, known))}")
    return known[exponent]()


_maps("relu.default", lambda x: of("maximum", x, 0.0))
_maps("relu6.default", lambda x: _between(x, 0.0, 6.0))
_maps("hardtanh.default", lambda x, least=-1.0, most=1.0: _between(x, least, most))
_maps("clamp.default", _between)
_maps("clamp_min.default", _between)
_maps("gelu.default", _gelu)
_maps("sigmoid.default", _sigmoid)
_maps("silu.default", lambda x: of("divide", x, of("add", 1.0, of("exp", of("negative", x)))))
_maps("hardsigmoid.default", _hardsigmoid)
_maps("hardswish.default", lambda x: of("multiply", x, _hardsigmoid(x)))
_maps("reciprocal.default", lambda x: of("divide", 1.0, x))
_maps("pow.Tensor_Scalar", _power)
TABLE["aten.gelu.default"] = lambda b, x, approximate="none": b.map(_gelu(x, approximate), "gelu")


@_covers("clone.default", "contiguous.default", "alias.default", "detach.default", "dropout.default", "lift_fresh_copy.default")
def _same(b: Builder, x: str, *_: Any) -> str:
    return x
