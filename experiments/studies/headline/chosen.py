"""Which layers become operators of the study, by rules alone: `python -m experiments.studies.headline.chosen` writes them down.

A layer is left out that is within a factor of two, on every axis, of an operator that was trained on or looked at before; within
1.25 of one that policies were selected by, or chosen already in the same data type; or too large or too small to be timed in a
crowd. Data types go round. The order is random with a fixed seed, so that a study cut short has all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import cycle

import numpy as np
import yaml

from experiments.common.settings import ROOT
from experiments.studies.headline import layers
from experiments.training.operators.variants import with_variants
from gensor_gym import hardware, operators
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.operators.types import Operator

FILE = ROOT / "conf" / "operator" / "gpu_study.yaml"
TRAINED, SELECTED = "split/v1/train", "split/v1/validation"
LOOKED_AT = ROOT / "conf" / "experiment" / "gpu_headline.yaml"
TWIN, ALIKE = 2.0, 1.25
"""Factors on every axis."""
MOST_BYTES, MOST_FLOPS = 112e6, 6e10
SECONDS = (0.2e-6, 250e-6)
"""Of the roofline on an H100."""
SEED = 11
NEAR_VARIANTS = ROOT / "results" / "gpu_study" / "near_variants.txt"
POLICIES = range(5)
"""Training seeds of the policies of the study (conf/train_columns_extended.yaml)."""
FLOATS = ("float32", "float16", "float32", "bfloat16")
WITH_BYTES = ("float32", "float16", "bfloat16", "float32", "int8", "float16", "bfloat16")
"""Data types in turn: products and convolutions have int8 too."""
_NUMBER = re.compile(r"\b(m|n|k|b|c|h|w|r|s)=(\d+)")
_SHAPE = re.compile(r"shape=\(([^)]*)\)")

Named = tuple[str, Operator]


def candidates() -> Iterator[Named]:
    """Layers as operators, in the order of the tables, with their data types."""
    whole, floats = cycle(WITH_BYTES), cycle(FLOATS)
    for name, (m, n, k) in layers.GEMMS:
        yield name, operators.gemm(m=m, n=n, k=k, dtype=next(whole))
    for name, (b, m, n, k) in layers.BATCHED:
        yield name, operators.batched_gemm(b=b, m=m, n=n, k=k, dtype=next(whole))
    for name, (m, k) in layers.GEMVS:
        yield name, operators.gemv(m=m, k=k, dtype=next(floats))
    for name, (n, c, h, w, k, r, s, stride, padding, groups) in layers.CONVOLUTIONS:
        dtype = next(whole) if groups == 1 else next(floats)
        window = {"r": r, "s": s, "stride": stride, "padding": padding, "groups": groups}
        yield name, operators.conv2d(n=n, c=c, h=h, w=w, k=k, **window, dtype=dtype)
    for name, (n, c, h, w, r, s, stride, padding) in layers.DEPTHWISE:
        yield name, operators.depthwise_conv2d(n=n, c=c, h=h, w=w, r=r, s=s, stride=stride, padding=padding, dtype=next(floats))
    for name, kind, (n, c, h, w, r, s, stride, padding) in layers.POOLINGS:
        sizes = {"n": n, "c": c, "h": h, "w": w, "r": r, "s": s, "stride": stride, "padding": padding}
        yield name, getattr(operators, kind)(**sizes, dtype=next(floats))
    for name, (m, k) in layers.REDUCTIONS:
        yield name, operators.reduce_sum(m=m, k=k, dtype=next(floats))
    for name, kind, shape in layers.MAPS:
        yield name, operators.elementwise(kind, *shape, dtype=next(floats))


def axes(op: Operator) -> tuple[int, ...]:
    """Sizes of an operator's axes, by its text."""
    text = str(op)
    if found := _SHAPE.search(text):
        return (int(np.prod([int(n) for n in found[1].split(",") if n.strip()])),)
    return tuple(int(value) for _, value in _NUMBER.findall(text))


def within(one: Operator, other: Operator, factor: float) -> bool:
    """Whether two operators of one class are within a factor on every axis."""
    if one.name != other.name or len(axes(one)) != len(axes(other)):
        return False
    return all(max(a, b) <= factor * min(a, b) for a, b in zip(axes(one), axes(other), strict=True))


def fits(op: Operator) -> bool:
    """Whether it can be timed in a crowd: its references are computed on the device, and so many kernels are timed."""
    low, high = SECONDS
    small = op.compulsory_bytes <= MOST_BYTES and op.flops <= MOST_FLOPS
    return small and low <= roofline_floor(op, hardware.get("h100")) <= high


def seen() -> list[Operator]:
    """Operators that were trained on or looked at."""
    looked_at = yaml.safe_load(LOOKED_AT.read_text(encoding="utf-8"))["operators"]
    return [*operators.resolve(TRAINED), *map(operators.parse, looked_at)]


def chosen() -> list[Named]:
    """The operators of the study, in its order."""
    before, selected, found = seen(), operators.resolve(SELECTED), list[Named]()
    for name, op in candidates():
        alike = [*selected, *(other for _, other in found if other.dtype == op.dtype)]
        if fits(op) and not _near(op, before, TWIN) and not _near(op, alike, ALIKE):
            found.append((name, op))
    return [found[place] for place in np.random.default_rng(SEED).permutation(len(found))]


def near_variants() -> list[str]:
    """Operators of the study within TWIN of a variant that a policy trained on.

    Axes of variants are half to twice as long as those of what is given (experiments/training/operators/variants.py).
    """
    config = yaml.safe_load((ROOT / "conf" / "train_columns_extended.yaml").read_text(encoding="utf-8"))
    given = list(operators.resolve(config["operators"]))
    several = [with_variants(given, config["variants"], np.random.default_rng(seed)) for seed in POLICIES]
    known = list({str(op): op for variants in several for op in variants}.values())
    return [str(op) for _, op in chosen() if _near(op, known, TWIN)]


def read_near_variants() -> list[str]:
    """As they were written down before the study."""
    return NEAR_VARIANTS.read_text(encoding="utf-8").splitlines()


def _near(op: Operator, others: Sequence[Operator], factor: float) -> bool:
    """Whether it is within a factor of one of these."""
    return any(within(op, other, factor) for other in others)


def text(found: Sequence[Named]) -> str:
    """The file."""
    head = (
        "# @package _global_\n"
        "# Operators of the study of learned policies beside the traverser on a GPU: layers of networks that nothing was\n"
        "# trained or tuned on. Written by python -m experiments.studies.headline.chosen, which says by what rules.\n"
        "operators:\n"
    )
    return head + "".join(f"  - {op} # {name}\n" for name, op in found)


if __name__ == "__main__":
    FILE.write_text(text(chosen()), encoding="utf-8")
    NEAR_VARIANTS.write_text("".join(f"{op}\n" for op in near_variants()), encoding="utf-8")
    print(f"{len(chosen())} operators in {FILE}, {len(near_variants())} of them near a variant of training")
