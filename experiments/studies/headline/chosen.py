"""Choose the operators of the GPU study from layers of networks: `python -m experiments.studies.headline.chosen`.

The command writes the list to conf/operator/gpu_study.yaml. experiments/data/layers.csv has layers of named networks at the sizes
of the models, with images in batches of 1 to 32 and sentences of 1 to 4096 tokens. Three rules leave layers out. A layer must not
be within a factor of two, on every axis, of an operator used in training or examined earlier. A layer must not be within a factor
of 1.25 of an operator by which policies were selected, or of a chosen operator of the same data type. And a layer must be neither
too large nor too small to be timed among many operators. Data types alternate. The order is random with a fixed seed, so that a
shortened study has all kinds of operators.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from agents.runs.settings import ROOT
from agents.training.operators.variants import with_variants
from experiments.device.archive.arms import learned_from
from gensor_gym import hardware, operators
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.operators.types import Operator

LAYERS = ROOT / "experiments" / "data" / "layers.csv"
"""File of layers. Three layers occur twice, and each is chosen at most once.

The duplicates stay in the file, because data types alternate over all of its lines.
"""
FILE = ROOT / "conf" / "operator" / "gpu_study.yaml"
TRAINED, SELECTED = "split/v1/train", "split/v1/validation"
LOOKED_AT = ROOT / "conf" / "experiment" / "gpu_headline.yaml"
TWIN, ALIKE = 2.0, 1.25
"""Factors within which, on every axis, an operator is too near another.

TWIN is for operators of training, ALIKE for those by which policies were selected and for chosen ones.
"""
MOST_BYTES, MOST_FLOPS = 112e6, 6e10
SECONDS = (0.2e-6, 250e-6)
"""Least and largest roofline floor on an H100, in seconds, of an operator that is chosen."""
SEED = 11
NEAR_VARIANTS = ROOT / "results" / "gpu_study" / "near_variants.txt"
NEAR_TIMED = ROOT / "results" / "gpu_study" / "near_timed.txt"
"""Files with the lists of `near_variants` and `near_timed`, which were written before the studies."""
CORRECTION = "agents/data/corrections/h200"
POLICIES = range(5)
"""Seeds of the trainings of the study's policies (conf/train_columns_extended.yaml)."""
FLOATS = ("float32", "float16", "float32", "bfloat16")
"""Data types that alternate over operators without an int8 form (see WITH_BYTES)."""
WITH_BYTES = ("float32", "float16", "bfloat16", "float32", "int8", "float16", "bfloat16")
"""Data types that alternate over matrix products and convolutions without groups, which also have an int8 form."""

Named = tuple[str, Operator]


def candidates() -> Iterator[Named]:
    """Yield (name of the layer, operator in its data type) for each line of the file of layers."""
    whole, floats = cycle(WITH_BYTES), cycle(FLOATS)
    with LAYERS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            text = row["operator"]
            has_bytes = text.startswith(("gemm(", "batched_gemm(", "conv2d(")) and "groups=" not in text
            yield row["layer"], operators.parse(f'{text[:-1]}, dtype="{next(whole if has_bytes else floats)}")')


def axes(op: Operator) -> tuple[int, ...]:
    """Return the sizes of an operator's axes; an elementwise map has one axis, the product of its shape."""
    given: dict[str, Any] = dict(op.arguments)
    return (math.prod(given["shape"]),) if "shape" in given else tuple(given[name] for name in given if name in "mnkbchwrs")


def within(one: Operator, other: Operator, factor: float) -> bool:
    """Return whether two operators of the same class are within `factor` of each other on every axis."""
    if one.name != other.name or len(axes(one)) != len(axes(other)):
        return False
    return all(max(a, b) <= factor * min(a, b) for a, b in zip(axes(one), axes(other), strict=True))


def fits(op: Operator) -> bool:
    """Return whether an operator is small enough for the study, which times many kernels of each operator and verifies them."""
    low, high = SECONDS
    small = op.compulsory_bytes <= MOST_BYTES and op.flops <= MOST_FLOPS
    return small and low <= roofline_floor(op, hardware.get("h100")) <= high


def chosen() -> list[Named]:
    """Return (name of the layer, operator) of each operator of the study, in its order."""
    looked_at = yaml.safe_load(LOOKED_AT.read_text(encoding="utf-8"))["operators"]
    before, selected = [*operators.resolve(TRAINED), *map(operators.parse, looked_at)], operators.resolve(SELECTED)
    found = list[Named]()
    for name, op in candidates():
        alike = [*selected, *(other for _, other in found if other.dtype == op.dtype)]
        if fits(op) and not _near(op, before, TWIN) and not _near(op, alike, ALIKE):
            found.append((name, op))
    return [found[place] for place in np.random.default_rng(SEED).permutation(len(found))]


def listed(path: Path) -> list[str]:
    """Read a list of operators, one per line, that was written before a study."""
    return path.read_text(encoding="utf-8").splitlines()


def near_variants() -> list[str]:
    """Return the study's operators that are within a factor `TWIN` of a variant on which a policy was trained.

    The axes of a variant are half to twice as long as those of its original (agents/training/operators/variants.py).
    """
    config = yaml.safe_load((ROOT / "conf" / "train_columns_extended.yaml").read_text(encoding="utf-8"))
    given = list(operators.resolve(config["operators"]))
    several = [with_variants(given, config["variants"], np.random.default_rng(seed)) for seed in POLICIES]
    known = list({str(op): op for variants in several for op in variants}.values())
    return [str(op) for _, op in chosen() if _near(op, known, TWIN)]


def near_timed() -> list[str]:
    """Return the study's operators within a factor `TWIN` of one from whose times a correction of the model was learned.

    Data types do not matter; operators that were learned from are left out.
    """
    learned = learned_from(CORRECTION)
    known = list(map(operators.parse, sorted(learned)))
    return [str(op) for _, op in chosen() if str(op) not in learned and _near(op, known, TWIN)]


def _near(op: Operator, others: Sequence[Operator], factor: float) -> bool:
    return any(within(op, other, factor) for other in others)


def text(found: Sequence[Named]) -> str:
    """Return the text of the configuration file that lists the chosen operators."""
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
    NEAR_TIMED.write_text("".join(f"{op}\n" for op in near_timed()), encoding="utf-8")
    print(f"{len(chosen())} operators in {FILE}, {len(near_variants())} of them near a variant of training")
