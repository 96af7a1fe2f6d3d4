"""Rules for discrete Fourier transforms of ATen and the complex numbers between them.

A transform along an axis is a product with constant matrices of cosines and sines. A complex value is a pair of real values, of
which only those parts are computed that something reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gensor_gym.dataflow.nodes import Slice
from gensor_gym.frontends.aten.choices import cast
from gensor_gym.frontends.aten.moves import joined_parts
from gensor_gym.frontends.aten.products import linear
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.casts import MOVES
from gensor_gym.frontends.covered import COMPLEX, TABLE, Rule

MOST_LENGTH = 1 << 12
"""Longest transform, because its work and its matrices grow with the square of the length."""


class Pair(NamedTuple):
    """A complex value: the names of its real and imaginary parts, or no name for an imaginary part that is 0."""

    real: str
    imaginary: str | None


def _covers(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        COMPLEX.update({f"aten.{name}": rule for name in names})
        return rule

    return register


def _pair(x: Pair | str) -> Pair:
    return x if isinstance(x, Pair) else Pair(x, None)


def constant(b: Builder, name: str, array: np.ndarray) -> Pair:
    """Add a constant of complex numbers."""
    return Pair(b.constant(name, array.real.astype(np.float32)), b.constant(name, array.imag.astype(np.float32)))


def _scale(norm: int, count: int) -> float:
    """Return the factor of ATen's code of a normalisation: 0 none, 1 by the root of the number of elements, 2 by the number."""
    return (1.0, 1.0 / math.sqrt(count), 1.0 / count)[norm]


def _along(b: Builder, x: str, axis: int, matrix: np.ndarray) -> str:
    """Multiply the lines of x along an axis by a matrix [elements of a line, elements of the result]."""
    last = len(b.shapes[x]) - 1
    order = [*(one for one in range(last + 1) if one != axis), axis]
    made = linear(b, b.dense(b.transpose(x, order)), b.constant("waves", np.ascontiguousarray(matrix.T, np.float32)))
    return b.transpose(made, np.argsort(order).tolist())


def _waves(rows: int, columns: int, length: int, sign: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the real and imaginary parts, float64 [rows, columns], of exp(sign * 2 pi i * row * column / length)."""
    if length > MOST_LENGTH:
        raise ValueError(f"a Fourier transform of {length} elements: expected at most {MOST_LENGTH}")
    turns = np.outer(np.arange(rows), np.arange(columns)) % length * (2.0 * math.pi / length)
    return np.cos(turns), sign * np.sin(turns)


def _sum(b: Builder, x: str | None, y: str | None, sign: str = "add") -> str | None:
    if x is None or y is None:
        return x if y is None else y if sign == "add" else b.call("negative", y)
    return b.call(sign, x, y)


def _turned(b: Builder, x: Pair, axis: int, waves: tuple[np.ndarray, np.ndarray]) -> Pair:
    """Multiply the lines of a pair along an axis by a complex matrix."""
    real, imaginary = waves
    crossed = None if x.imaginary is None else _along(b, x.imaginary, axis, -imaginary)
    beside = None if x.imaginary is None else _along(b, x.imaginary, axis, real)
    made = _sum(b, _along(b, x.real, axis, real), crossed)
    assert made is not None
    return Pair(made, _sum(b, _along(b, x.real, axis, imaginary), beside))


@_covers("_fft_c2c.default", "_fft_r2c.default")
def _fft(b: Builder, x: Pair | str, axes: Sequence[int], norm: int, option: bool) -> Pair:
    """Transform along axes. `option`: of complex numbers, whether forward; of real ones, whether the last axis is halved."""
    made, axes = _pair(x), [axis % len(b.shapes[_pair(x).real]) for axis in axes]
    shape = b.shapes[made.real]
    half, sign = isinstance(x, str) and option, 1 if isinstance(x, Pair) and not option else -1
    factor = _scale(norm, math.prod(shape[axis] for axis in axes))
    for axis in reversed(axes):
        n = shape[axis]
        columns = n // 2 + 1 if half and axis == axes[-1] else n
        real, imaginary = _waves(n, columns, n, sign)
        made, factor = _turned(b, made, axis, (factor * real, factor * imaginary)), 1.0
    return made


@_covers("_fft_c2r.default")
def _fft_c2r(b: Builder, x: Pair | str, axes: Sequence[int], norm: int, length: int) -> str:
    """Transform back, where the last axis has half of numbers that are symmetric: real numbers, `length` along the last axis."""
    made, axes = _pair(x), [axis % len(b.shapes[_pair(x).real]) for axis in axes]
    shape, last = b.shapes[made.real], axes[-1]
    factor = _scale(norm, math.prod(length if axis == last else shape[axis] for axis in axes))
    for axis in axes[:-1]:
        made = _turned(b, made, axis, _waves(shape[axis], shape[axis], shape[axis], 1))
    rows = min(shape[last], length // 2 + 1)
    parts = [None if one is None else one if rows == shape[last] else b.add(Slice(one, last, 0, rows), "half") for one in made]
    twice = np.where((np.arange(rows) == 0) | (2 * np.arange(rows) == length), factor, 2.0 * factor)[:, None]
    real, imaginary = _waves(rows, length, length, 1)
    assert parts[0] is not None
    crossed = None if parts[1] is None else _along(b, parts[1], last, -twice * imaginary)
    found = _sum(b, _along(b, parts[0], last, twice * real), crossed)
    assert found is not None
    return found


@_covers("view_as_real.default")
def _view_as_real(b: Builder, x: Pair) -> str:
    shape = (*b.shapes[x.real], 1)
    other = b.constant("zero", np.zeros(shape, np.float32)) if x.imaginary is None else b.reshape(b.dense(x.imaginary), shape)
    return joined_parts(b, [b.reshape(b.dense(x.real), shape), other], len(shape) - 1)


@_covers("view_as_complex.default")
def _view_as_complex(b: Builder, x: str) -> Pair:
    *shape, _ = b.shapes[x]
    parts = [b.reshape(b.add(Slice(x, len(shape), at, at + 1), "part"), shape) for at in (0, 1)]
    return Pair(*parts)


@_covers("_to_copy.default")
def _cast(b: Builder, x: Pair | str, dtype: Any = None, **__: Any) -> Pair | str:
    """Cast to complex numbers, or cast the real part. A bool is whether either part is not 0."""
    if not isinstance(x, Pair) or dtype is None or dtype.is_complex:
        return _pair(x)
    b.reads = {**b.reads, **{part: "float32" for part in x if part is not None}}
    parts = [cast(b, part, dtype) for part in x[: 2 if str(dtype) == "torch.bool" else 1] if part is not None]
    return parts[0] if len(parts) == 1 else b.call("maximum", *parts)


@_covers("abs.default")
def _abs(b: Builder, x: Pair) -> str:
    if x.imaginary is None:
        return b.call("absolute", x.real)
    large, small = (of(one, of("absolute", x.real), of("absolute", x.imaginary)) for one in ("maximum", "minimum"))
    least, most = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
    share = of("divide", of("minimum", small, most), of("maximum", large, least))  # 0 of 0, and of infinity
    return b.map(of("multiply", large, of("sqrt", of("add", 1.0, of("multiply", share, share)))), "length")


@_covers("mul.Tensor", "mul.Scalar")
def _mul(b: Builder, x: Pair | str | complex, y: Pair | str | complex) -> Pair:
    x, y = (constant(b, "number", np.asarray(one)) if isinstance(one, complex) else one for one in (x, y))
    if not isinstance(x, Pair):
        x, y = y, x
    assert isinstance(x, Pair)
    if not isinstance(y, Pair) or y.imaginary is None:
        by = y.real if isinstance(y, Pair) else y
        return Pair(b.call("multiply", x.real, by), None if x.imaginary is None else b.call("multiply", x.imaginary, by))
    if x.imaginary is None:
        return _mul(b, y, x)
    real = b.map(of("subtract", of("multiply", x.real, y.real), of("multiply", x.imaginary, y.imaginary)), "real")
    return Pair(real, b.map(of("add", of("multiply", x.real, y.imaginary), of("multiply", x.imaginary, y.real)), "imaginary"))


def _sums(sign: str) -> Rule:
    def rule(b: Builder, x: Pair | str | complex, y: Pair | str | complex, alpha: float = 1) -> Pair:
        given = (constant(b, "number", np.asarray(one)) if isinstance(one, complex) else one for one in (x, y))
        (a, c), (d, e) = (one if isinstance(one, Pair) else (one, None) for one in given)
        real = b.call(sign, a, d if alpha == 1 else of("multiply", d, alpha))
        imaginary = _sum(b, c, e if e is None or alpha == 1 else b.call("multiply", e, alpha), sign)
        return Pair(real, None if imaginary is None else b.repeat(imaginary, b.shapes[real]))

    return rule


_covers("add.Tensor", "add.Scalar")(_sums("add"))
_covers("sub.Tensor", "sub.Scalar")(_sums("subtract"))


@_covers("_conj.default")
def _conjugate(b: Builder, x: Pair) -> Pair:
    return Pair(x.real, None if x.imaginary is None else b.call("negative", x.imaginary))


def _of_parts(name: str) -> Rule:
    """Make the rule of an operation that moves elements, which moves both parts."""

    def rule(b: Builder, x: Pair, *arguments: Any, **options: Any) -> Pair:
        real, imaginary = (None if part is None else TABLE[name](b, part, *arguments, **options) for part in x)
        return Pair(real, imaginary)  # type: ignore[arg-type]

    return rule


COMPLEX.update({name: _of_parts(name) for name in (*sorted(MOVES), "aten.roll.default")})
