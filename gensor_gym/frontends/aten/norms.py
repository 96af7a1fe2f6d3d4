"""Rules for normalisations of ATen: batch norm by running statistics, layer, group and instance norm, and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import covers as _covers


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


@_covers("softmax.int", "_softmax.default")
def softmax(b: Builder, x: str, axis: int, _: Any = None) -> str:
    """Compute a softmax along an axis."""
    powers = b.call("exp", of("subtract", x, b.repeat(b.reduce(x, "max", [axis]), b.shapes[x])))
    return b.call("divide", powers, b.repeat(b.reduce(powers, "sum", [axis]), b.shapes[x]))


@_covers("layer_norm.default")
def _layer_norm(
    b: Builder, x: str, over: Sequence[int], w: str | None = None, bias: str | None = None, eps: float = 1e-5, *_: Any
) -> str:
    axes = range(len(b.shapes[x]) - len(over), len(b.shapes[x]))
    made = _of_statistics(b, x, axes, eps)
    made = made if w is None else b.call("multiply", made, w)
    return made if bias is None else b.call("add", made, bias)


@_covers("native_layer_norm.default")
def _native_layer_norm(
    b: Builder, x: str, over: Sequence[int], w: str | None, bias: str | None, eps: float
) -> tuple[str, str, str]:
    axes = range(len(b.shapes[x]) - len(over), len(b.shapes[x]))
    return _layer_norm(b, x, over, w, bias, eps), *_statistics(b, x, axes, eps)


@_covers("_log_softmax.default", "log_softmax.int")
def _log_softmax(b: Builder, x: str, axis: int, _: Any = None) -> str:
    less = b.call("subtract", x, b.repeat(b.reduce(x, "max", [axis]), b.shapes[x]))
    return b.call("subtract", less, of("log", b.repeat(b.reduce(b.call("exp", less), "sum", [axis]), b.shapes[x])))


@_covers("native_group_norm.default")
def _group_norm(
    b: Builder, x: str, w: str | None, bias: str | None, n: int, c: int, size: int, groups: int, eps: float
) -> tuple[str, str, str]:
    shape, rows = b.shapes[x], b.reshape(x, (n, groups, c // groups * size))
    made = b.reshape(_of_statistics(b, rows, [2], eps), shape)
    mean, rstd = (b.reshape(one, (n, groups)) for one in _statistics(b, rows, [2], eps))
    return _of_channels(b, made, w, bias), mean, rstd


@_covers("_native_batch_norm_legit.no_stats")
def _instance_norm(
    b: Builder, x: str, w: str | None, bias: str | None, training: bool, momentum: float, eps: float
) -> tuple[str]:
    axes = [axis for axis in range(len(b.shapes[x])) if axis != 1]
    return (_of_channels(b, _of_statistics(b, x, axes, eps), w, bias),)


def _statistics(b: Builder, x: str, axes: Sequence[int], eps: float) -> tuple[str, str]:
    """Return the names of the mean and of 1 / sqrt(variance + eps) of x along axes, which keep extent 1."""
    mean = b.mean(x, axes)
    centred = b.call("subtract", x, mean)
    return mean, b.call("rsqrt", of("add", b.mean(b.call("multiply", centred, centred), axes), eps))


def _of_statistics(b: Builder, x: str, axes: Sequence[int], eps: float) -> str:
    mean, rstd = _statistics(b, x, axes, eps)
    return b.call("multiply", b.call("subtract", x, mean), rstd)


def _of_channels(b: Builder, x: str, w: str | None, bias: str | None) -> str:
    """Multiply x by a weight and add a bias, each with one number per channel (axis 1). None omits either."""
    apart = (-1, *[1] * (len(b.shapes[x]) - 2))
    x = x if w is None else b.call("multiply", x, b.reshape(w, apart))
    return x if bias is None else b.call("add", x, b.reshape(bias, apart))
