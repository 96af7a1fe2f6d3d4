"""Generate training operators: sizes drawn over powers of ten, in the train part only.

Tables of networks have few small outputs of long sums, which need other programs. Sizes are drawn so that a policy meets every
kind of size in training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from agents.cli.checks import check_whole
from gensor_gym import hardware, operators
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.operators.shapes.nearness import near
from gensor_gym.operators.types import Operator

SECONDS = (0.1e-6, 5e-3)
"""Shortest and longest allowed roofline time of an operator, in seconds.

A shorter time is dominated by the launch, and a longer time is not measured in practice.
"""
MOST_BYTES = 2e9
MOST_DRAWS = 100
"""Maximum number of draws for each wanted operator."""
_TYPES = ("float32", "float16", "bfloat16", "int8")
_WITH_TYPES = ("gemm", "batched_gemm", "conv2d")
"""Classes that are also drawn in other data types than float32, because tensor cores support them."""
_GRAIN = 8
"""Half of the drawn sizes are multiples of this number; a quarter are powers of two, and a quarter are any number."""

Draw = Callable[[np.random.Generator], dict[str, int]]


def drawn_for(config: Mapping[str, Any], rng: np.random.Generator) -> list[Operator]:
    """Draw the training operators that the configuration `drawn` requests.

    No operator is within a factor of two on every axis of an operator of `drawn.apart`, or of a held-out part of split v1.
    ValueError names an invalid setting.
    """
    settings = config.get("drawn") or {"count": 0}
    check_whole(settings, 0, "count", of="drawn.")
    if not settings["count"]:
        return []
    dtypes = settings["dtypes"]
    if not isinstance(dtypes, Sequence) or isinstance(dtypes, str) or not dtypes or not set(dtypes) <= set(_TYPES):
        raise ValueError(f"drawn.dtypes is {dtypes!r}; expected a list of some of {', '.join(_TYPES)}")
    given = [*settings["apart"]["operators"], *(f"split/v1/{part}" for part in ("validation", "test"))]
    apart = list(operators.resolve(given))
    return _drawn(settings["count"], config["env"]["hardware"], dtypes, rng, lambda op: any(near(op, other) for other in apart))


def _drawn(
    count: int, machine: str, dtypes: Sequence[str], rng: np.random.Generator, is_apart: Callable[[Operator], bool]
) -> list[Operator]:
    """Draw `count` distinct operators, from one class after another.

    Matrix products and plain convolutions (`_WITH_TYPES`) have one of `dtypes`, other classes float32.
    """
    hw, found = hardware.get(machine), dict[Operator, None]()
    for _ in range(MOST_DRAWS * count):
        name = _ORDER[len(found) % len(_ORDER)]
        dtype = str(rng.choice(dtypes)) if name in _WITH_TYPES else "float32"
        try:
            op = random_operator(name, rng, dtype)
        except ValueError:  # more elements than an operator may have
            continue
        timed = op.compulsory_bytes <= MOST_BYTES and SECONDS[0] <= roofline_floor(op, hw) <= SECONDS[1]
        if timed and operators.part_of(op) == "train" and not is_apart(op):
            found[op] = None
        if len(found) == count:
            return list(found)
    raise ValueError(f"drawn.count is {count}; expected less: {len(found)} operators in {MOST_DRAWS * count} draws")


def random_operator(name: str, rng: np.random.Generator, dtype: str = "float32") -> Operator:
    """Draw an operator of the class `name` with random sizes. ValueError if it has more elements than an operator may have."""
    return operators.FACTORIES[name](**_DRAWS[name](rng), dtype=dtype)


def _size(rng: np.random.Generator, low: int, high: int) -> int:
    """Draw a size between `low` and `high`, with a uniform logarithm before rounding."""
    size = 2 ** rng.uniform(math.log2(low), math.log2(high))
    kind = int(rng.integers(4))
    if kind == 0:
        return int(2 ** round(math.log2(size)))
    return round(size / _GRAIN) * _GRAIN if kind < 3 and size >= _GRAIN else max(1, round(size))


def _convolution(rng: np.random.Generator) -> dict[str, int]:
    window = int(rng.choice([1, 1, 3, 3, 3, 5, 7]))
    dilation = int(rng.choice([1, 1, 1, 2])) if window > 1 else 1
    return {
        **_images(rng, dilation * (window - 1) + 1), "r": window, "s": window, "c": _size(rng, 3, 2048), "k": _size(rng, 8, 2048),
        "padding": dilation * (window // 2) * int(rng.integers(2)), "dilation": dilation,
    }  # fmt: skip


def _windowed(rng: np.random.Generator, windows: Sequence[int]) -> dict[str, int]:
    window = int(rng.choice(windows))
    return {**_images(rng, window), "r": window, "s": window, "padding": window // 2 * int(rng.integers(2))}


def _images(rng: np.random.Generator, least: int) -> dict[str, int]:
    side, stride = max(least, _size(rng, 5, 330)), int(rng.choice([1, 1, 2]))
    return {"n": _size(rng, 1, 128), "c": _size(rng, 8, 2048), "h": side, "w": side, "stride": stride}


def _sizes(rng: np.random.Generator, **ranges: tuple[int, int]) -> dict[str, int]:
    return {name: _size(rng, *limits) for name, limits in ranges.items()}


_DRAWS: dict[str, Draw] = {
    "gemm": partial(_sizes, m=(1, 65536), n=(16, 16384), k=(4, 16384)),
    "batched_gemm": partial(_sizes, b=(2, 256), m=(16, 2048), n=(16, 2048), k=(16, 2048)),
    "gemv": partial(_sizes, m=(16, 65536), k=(64, 65536)),
    "reduce_sum": partial(_sizes, m=(1, 1 << 19), k=(16, 1 << 25)),
    "conv2d": _convolution,
    "max_pool2d": partial(_windowed, windows=(2, 3, 3, 5, 7)),
    "avg_pool2d": partial(_windowed, windows=(2, 3, 3, 5, 7)),
    "depthwise_conv2d": partial(_windowed, windows=(3, 3, 5, 7)),
}
_ORDER = ("gemm", "conv2d", "batched_gemm", "conv2d", "gemm", "reduce_sum", "conv2d", "gemv", "max_pool2d", "avg_pool2d")
