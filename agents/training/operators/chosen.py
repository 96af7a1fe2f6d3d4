"""Choose the operators of Measured v1 by rules and a seed: the same list on every machine.

Half are layers of named networks (`layers`), half have random sizes. Operators of the classes `UNSEEN` are only in the part
`unseen`. The parts `train` and `validation` are within the same parts of split v2. No operator of `train` or `validation` is near
one of `test` (within a factor of two on every axis), and no operator of any part is near split v2's own test part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np

from agents.training.operators.drawn import random_operator
from agents.training.operators.layers import drawn_layer
from gensor_gym import operators
from gensor_gym.operators.shapes.nearness import near
from gensor_gym.operators.types import Operator

PARTS = {"train": 1500, "validation": 100, "test": 64, "unseen": 64}
"""Part of Measured v1 -> number of operators."""
KNOWN = ("conv2d", "gemm", "conv2d", "max_pool2d", "gemm", "conv2d", "reduce_sum", "gemv", "avg_pool2d")
"""Operator classes of all parts except `unseen`, in the order in which they take turns."""
UNSEEN = ("depthwise_conv2d", "batched_gemm")
FLOPS, BYTES = (2e4, 1e9), (4e3, 32e6)
"""(smallest, largest) allowed number of floating-point operations, and of bytes of traffic, of an operator.

They allow microseconds to tens of milliseconds on one core.
"""
FROZEN, EPILOGUES = 0.5, (("bias",), ("bias", "relu"), ("bias", "gelu"), ("relu",))
"""Share of matrix products and convolutions that have constant weights, as in networks; epilogues, which half of them have."""
ADDED = {"unseen_2": 64, "unseen_validation": 32, "unrecorded": 400}
"""Part that was added later -> number of operators. They are of the classes UNSEEN, and their times are not recorded.

Policies are trained on `unrecorded`, with times predicted by models of time.
"""
FEW, MOST_TURNS = 30, 4
"""Maximum number of draws of a class in one turn, and maximum number of turns per wanted operator."""
SEED = 1


@dataclass(frozen=True)
class Chosen:
    """An operator of Measured v1 and the part that it belongs to."""

    part: str
    operator: Operator


def chosen(seed: int = SEED) -> list[Chosen]:
    """Return all operators of Measured v1 in a random order of recording.

    A recording that is stopped early thus has operators of all parts.
    """
    apart = list(operators.resolve(["split/v2/test"]))
    found: dict[str, list[Operator]] = {}
    for number, part in enumerate(("test", "unseen", "train", "validation")):
        others = [*apart, *(found["test"] if part in ("train", "validation") else [])]
        rng = np.random.default_rng([seed, number])
        found[part] = _drawn(part, PARTS[part], rng, others)
    listed = [Chosen(part, op) for part in PARTS for op in found[part]]
    return [listed[place] for place in np.random.default_rng(seed).permutation(len(listed))]


def added(seed: int = SEED) -> list[Chosen]:
    """Return the operators of the parts that were added later (`ADDED`), in a random order.

    No operator is near an operator of `chosen` or of an earlier one of these parts.
    """
    apart = [*operators.resolve(["split/v2/test"]), *(one.operator for one in chosen(seed))]
    found = list[Chosen]()
    for number, (part, count) in enumerate(ADDED.items(), len(PARTS)):
        new = _drawn(part, count, np.random.default_rng([seed, number]), apart)
        apart += new
        found += [Chosen(part, op) for op in new]
    return [found[place] for place in np.random.default_rng(seed).permutation(len(found))]


def _drawn(part: str, count: int, rng: np.random.Generator, others: Sequence[Operator]) -> list[Operator]:
    """Draw distinct operators of a part that are not near any of `others`; every second operator is a layer of a network.

    The operator classes take turns. A class passes its turn if none of 30 draws (`FEW`) is suitable, since some have few further
    operators (few networks use average pooling).
    """
    found, unseen = dict[Operator, None](), part not in ("train", "validation", "test")
    for turn, kind in enumerate(cycle(UNSEEN if unseen else KNOWN)):
        if len(found) == count or turn > MOST_TURNS * count:
            break
        place = turn // len(UNSEEN) if part in ADDED else turn  # in `unseen`, layers and random sizes each have one class
        drawn = (_one(kind, place % 2 == 0, rng) for _ in range(FEW))
        new = (op for op in drawn if op is not None and op not in found)
        right = (op for op in new if unseen or part == operators.part_of(op, "v2"))
        found.update(dict.fromkeys(islice((op for op in right if not any(near(op, other) for other in others)), 1)))
    return list(found)


def _one(kind: str, layers: bool, rng: np.random.Generator) -> Operator | None:
    try:
        op = drawn_layer(rng, kind) if layers else random_operator(kind, rng)
    except ValueError:  # an image that is smaller than the window, or too many elements
        return None
    if not (FLOPS[0] <= op.flops <= FLOPS[1] and BYTES[0] <= op.compulsory_bytes <= BYTES[1]):
        return None
    if kind in ("gemm", "conv2d"):
        if rng.random() < 0.5:
            op = op.with_epilogue(*EPILOGUES[rng.integers(len(EPILOGUES))])
        if rng.random() < FROZEN:
            op = op.freeze()
    return op
