"""Fused operators by name whose time is memory traffic, such as softmax: each function writes the text of one graph.

The operators come from IntelliGen's public code and its hooks, Ansor (NRM), and current networks. IntelliGen's own table of
operators is not public; this suite stands in for it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

from gensor_gym.dataflow.graph import MOST_ELEMENTS, Dataflow
from gensor_gym.dataflow.text import parse
from gensor_gym.operators.text import read_call
from gensor_gym.registry import near

FACTORIES: dict[str, Callable[..., Dataflow]] = {}
"""Name of a fused operator -> function that makes its graph from its extents."""


def make(name: str, *values: Any, **arguments: Any) -> Dataflow:
    """Make a fused operator by name, such as `make("softmax", 128, 768)`.

    The further arguments are its extents and options. ValueError for an unknown name or invalid arguments.
    """
    if name not in FACTORIES:
        raise ValueError(f"fused operator {name!r}: expected one of {', '.join(FACTORIES)}{near(name, FACTORIES)}")
    return FACTORIES[name](*values, **arguments)


def arguments_of(graph: Dataflow) -> dict[str, Any]:
    """Return the arguments with which `make` made a graph, as {name: value} with defaults; ValueError for other graphs."""
    if graph.name not in FACTORIES or not graph.label:
        raise ValueError(f"{graph}: expected the graph of a factory: {', '.join(FACTORIES)}")
    values, options = read_call(graph.label)
    bound = inspect.signature(FACTORIES[graph.name]).bind(*values, **options)
    bound.apply_defaults()
    return dict(bound.arguments)


def _factory(made: Callable[..., str]) -> Callable[..., str]:
    """Register a function that writes a graph's text, as a function that makes the graph (decorator).

    The registered function checks the arguments and parses the text.
    """

    @functools.wraps(made)
    def build(*values: Any, **options: Any) -> Dataflow:
        signature = inspect.signature(made)
        try:
            given = signature.bind(*values, **options)
        except TypeError as error:
            accepted = ", ".join(map(str, signature.parameters.values())).replace("'", "")
            raise ValueError(f"{made.__name__}: {error}; expected {made.__name__}({accepted})") from error
        for name, value in given.arguments.items():
            _check(f"{made.__name__}: {name}", value, signature.parameters[name].annotation)
        call = ", ".join(f"{name}={value!r}" for name, value in given.arguments.items())
        return dataclasses.replace(parse(made(*values, **options)), label=f"{made.__name__}({call})")

    FACTORIES[made.__name__] = build
    return made


def _check(name: str, value: object, kind: str) -> None:
    if kind == "int" and (not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_ELEMENTS):
        raise ValueError(f"{name}={value!r}, expected a whole number of 1 to {MOST_ELEMENTS}")
    if kind == "float" and (not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value)):
        raise ValueError(f"{name}={value!r}, expected a finite number")


@_factory
def softmax(m: int, n: int) -> str:
    """Write the graph of a softmax over each row."""
    return f"""
def softmax(x: float32[{m}, {n}]):
    top = reduce_max(x, axes=[1])
    e = exp(x - top)
    total = reduce_sum(e, axes=[1])
    y = e / total
    return y
"""


@_factory
def masked_softmax(m: int, n: int, scale: float = 0.125) -> str:
    """Write the graph of a softmax over each row of scaled scores plus a mask: 0 for visible and -inf for hidden elements.

    A fully masked row gives NaN.
    """
    return f"""
def masked_softmax(x: float32[{m}, {n}], mask: float32[{m}, {n}]):
    scores = x * {float(scale)!r} + mask
    top = reduce_max(scores, axes=[1])
    e = exp(scores - top)
    total = reduce_sum(e, axes=[1])
    y = e / total
    return y
"""


_NORMALISED = """    mean = reduce_sum({x}, axes=[1])
    centred = {x} - mean * {inverse!r}
    squares = centred * centred
    spread = reduce_sum(squares, axes=[1])
    scale = rsqrt(spread * {inverse!r} + {eps!r})
    y = centred * scale * gamma + beta
"""


@_factory
def layernorm(m: int, n: int, eps: float = 1e-5) -> str:
    """Write the graph of a layer normalisation of each row, with gain and offset.

    The variance takes a second pass over the row, because E[x^2] - E[x]^2 cancels.
    """
    return f"""
def layernorm(x: float32[{m}, {n}], gamma: constant(float32[{n}]), beta: constant(float32[{n}])):
{_NORMALISED.format(x="x", inverse=1.0 / n, eps=eps)}    return y
"""


@_factory
def add_layernorm(m: int, n: int, eps: float = 1e-5) -> str:
    """Write the graph of the sum of x and a residual, then a layer normalisation. Both results are outputs."""
    return f"""
def add_layernorm(x: float32[{m}, {n}], r: float32[{m}, {n}], gamma: constant(float32[{n}]), beta: constant(float32[{n}])):
    s = x + r
{_NORMALISED.format(x="s", inverse=1.0 / n, eps=eps)}    return s, y
"""


@_factory
def rmsnorm(m: int, n: int, eps: float = 1e-6) -> str:
    """Write the graph of an RMS normalisation of each row, with gain."""
    return f"""
def rmsnorm(x: float32[{m}, {n}], gamma: constant(float32[{n}])):
    squares = x * x
    total = reduce_sum(squares, axes=[1])
    scale = rsqrt(total * {1.0 / n!r} + {eps!r})
    y = x * scale * gamma
    return y
"""


@_factory
def norm(m: int, n: int) -> str:
    """Write the graph of the Frobenius norm of a matrix: the root of the sum of all squares (Ansor's NRM)."""
    return f"""
def norm(x: float32[{m}, {n}]):
    squares = x * x
    total = reduce_sum(squares, axes=[0, 1])
    y = sqrt(total)
    return y
"""


@_factory
def bias_gelu(m: int, n: int) -> str:
    """Write the graph of a bias, then the exact GELU with the error function."""
    return f"""
def bias_gelu(x: float32[{m}, {n}], bias: constant(float32[{n}])):
    s = x + bias
    y = 0.5 * s * (1.0 + erf(s * 0.7071067811865476))
    return y
"""


@_factory
def bias_tanh_gelu(m: int, n: int) -> str:
    """Write the graph of a bias, then GPT-2's GELU with the hyperbolic tangent (Hendrycks and Gimpel, arXiv 1606.08415)."""
    return f"""
def bias_tanh_gelu(x: float32[{m}, {n}], bias: constant(float32[{n}])):
    s = x + bias
    y = 0.5 * s * (1.0 + tanh(0.7978845608028654 * (s + 0.044715 * s * s * s)))
    return y
"""


@_factory
def swiglu(m: int, n: int) -> str:
    """Write the graph of SwiGLU: the sigmoid-weighted unit (SiLU) of a gate, times a second input (Shazeer, arXiv 2002.05202)."""
    return f"""
def swiglu(gate: float32[{m}, {n}], up: float32[{m}, {n}]):
    y = gate / (1.0 + exp(-gate)) * up
    return y
"""


@_factory
def rope(t: int, h: int, d: int) -> str:
    """Write the graph of a rotary embedding (Su et al., arXiv 2104.09864) of the halves of each head.

    Its inputs are the heads, and the cosines and sines of the angles.
    """
    half = d // 2
    if d % 2:
        raise ValueError(f"rope: d={d}, expected an even number")
    return f"""
def rope(x: float32[{t}, {h}, {d}], cosines: float32[{t}, 1, {half}], sines: float32[{t}, 1, {half}]):
    left = slice(x, axis=2, start=0, stop={half})
    right = slice(x, axis=2, start={half}, stop={d})
    first = left * cosines - right * sines
    second = right * cosines + left * sines
    y = concat(first, second, axis=2)
    return y
"""


@_factory
def channel_shuffle(n: int, groups: int, c: int, h: int, w: int) -> str:
    """Write the graph of a channel shuffle (ShuffleNet, arXiv 1707.01083), which interleaves all groups, of c channels each."""
    return f"""
def channel_shuffle(x: float32[{n}, {groups * c}, {h}, {w}]):
    apart = reshape(x, to=[{n}, {groups}, {c}, {h * w}])
    turned = transpose(apart, order=[0, 2, 1, 3])
    y = reshape(turned, to=[{n}, {groups * c}, {h}, {w}])
    return y
"""


@_factory
def transpose_relu(a: int, b: int, c: int, d: int) -> str:
    """Write the graph of a transpose to the order (2, 0, 3, 1), then a ReLU, an operator of IntelliGen's repository."""
    return f"""
def transpose_relu(x: float32[{a}, {b}, {c}, {d}]):
    turned = transpose(x, order=[2, 0, 3, 1])
    y = maximum(turned, 0.0)
    return y
"""


@_factory
def transpose_last(a: int, b: int, c: int) -> str:
    """Write the graph of a transpose of the last two axes, as in the channel shuffle of IntelliGen's repository."""
    return f"""
def transpose_last(x: float32[{a}, {b}, {c}]):
    y = transpose(x, order=[0, 2, 1])
    return y
"""


@_factory
def relu_add(a: int, b: int, c: int, d: int) -> str:
    """Write the graph of the operator that IntelliGen's repository calls SAR_DRN_0: relu(x) + r."""
    return f"""
def relu_add(x: float32[{a}, {b}, {c}, {d}], r: float32[{a}, {b}, {c}, {d}]):
    y = maximum(x, 0.0) + r
    return y
"""


@_factory
def relu_sub(a: int, b: int, c: int, d: int) -> str:
    """Write the graph of the operator that IntelliGen's repository calls SAR_DRN_1: relu(x) - r."""
    return f"""
def relu_sub(x: float32[{a}, {b}, {c}, {d}], r: float32[{a}, {b}, {c}, {d}]):
    y = maximum(x, 0.0) - r
    return y
"""


@_factory
def bias(m: int, n: int) -> str:
    """Write the graph of a parameter added to each row, as the bias over pixels and channels in IntelliGen's repository."""
    return f"""
def bias(x: float32[{m}, {n}], offset: constant(float32[{n}])):
    y = x + offset
    return y
"""


@_factory
def reduce_mean(a: int, b: int, c: int) -> str:
    """Write the graph of a mean along the last axis, which keeps extent 1, an operator of IntelliGen's repository."""
    return f"""
def reduce_mean(x: float32[{a}, {b}, {c}]):
    total = reduce_sum(x, axes=[2])
    y = total * {1.0 / c!r}
    return y
"""


@_factory
def gelu(m: int, n: int) -> str:
    """Write the graph of the exact GELU with the error function, without a bias."""
    return f"""
def gelu(x: float32[{m}, {n}]):
    y = 0.5 * x * (1.0 + erf(x * 0.7071067811865476))
    return y
"""


@_factory
def kv_concat(h: int, t: int, d: int) -> str:
    """Write the graph of a key (or value) cache: t previous tokens, then a new token, for each of h heads with d numbers."""
    return f"""
def kv_concat(before: float32[{h}, {t}, {d}], now: float32[{h}, 1, {d}]):
    y = concat(before, now, axis=1)
    return y
"""
