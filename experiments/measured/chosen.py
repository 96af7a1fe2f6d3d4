"""Operators of Measured v1, by rules and a seed: the same list on every machine.

Half are layers of named networks (`layers`), half have random sizes. Classes in UNSEEN are only in the part `unseen`. Operators
of `train` and `validation` are of those parts of split v2. No operator of `test` is near one of `train` (within a factor of two
on every axis); none of any part is near split v2's own test part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np

from experiments.measured.layers import drawn_layer
from experiments.training.operators.drawn import random_operator
from gensor_gym import operators
from gensor_gym.operators.shapes.nearness import near
from gensor_gym.operators.types import Operator

PARTS = {"train": 1500, "validation": 100, "test": 64, "unseen": 64}
"""Operators of each part."""
KNOWN = ("conv2d", "gemm", "conv2d", "max_pool2d", "gemm", "conv2d", "reduce_sum", "gemv", "avg_pool2d")
"""Classes of the parts that are learned from, in turn."""
UNSEEN = ("depthwise_conv2d", "batched_gemm")
FLOPS, BYTES = (2e4, 1e9), (4e3, 32e6)
"""Least and most arithmetic and traffic: from microseconds to some ten milliseconds on one core."""
FROZEN, EPILOGUES = 0.5, (("bias",), ("bias", "relu"), ("bias", "gelu"), ("relu",))
"""Share of products and convolutions with constant weights, as networks have them; epilogues of half of these classes."""
FEW, MOST_TURNS = 30, 4
"""Draws of a class before the next has its turn; turns for each wanted operator."""
SEED = 1


@dataclass(frozen=True)
class Chosen:
    """An operator of the data set."""

    part: str
    operator: Operator


def chosen(seed: int = SEED) -> list[Chosen]:
    """All operators in the order of recording, which is random: a recording that is stopped early has all parts."""
    apart = list(operators.resolve(["split/v2/test"]))
    found: dict[str, list[Operator]] = {}
    for number, part in enumerate(("test", "unseen", "train", "validation")):
        others = [*apart, *(found["test"] if part in ("train", "validation") else [])]
        rng = np.random.default_rng([seed, number])
        found[part] = _drawn(part, PARTS[part], rng, others)
    listed = [Chosen(part, op) for part in PARTS for op in found[part]]
    return [listed[place] for place in np.random.default_rng(seed).permutation(len(listed))]


def _drawn(part: str, count: int, rng: np.random.Generator, others: Sequence[Operator]) -> list[Operator]:
    """Different operators of a part, none near one of the others, a class at a time, every second one a layer of a network.

    A class that has no more of them (few networks pool by averages) takes no more than FEW draws each time.
    """
    found = dict[Operator, None]()
    for turn, kind in enumerate(cycle(UNSEEN if part == "unseen" else KNOWN)):
        if len(found) == count or turn > MOST_TURNS * count:
            break
        drawn = (_one(kind, turn % 2 == 0, rng) for _ in range(FEW))
        new = (op for op in drawn if op is not None and op not in found)
        right = (op for op in new if part in ("unseen", operators.part_of(op, "v2")))
        found.update(dict.fromkeys(islice((op for op in right if not any(near(op, other) for other in others)), 1)))
    return list(found)


def _one(kind: str, layers: bool, rng: np.random.Generator) -> Operator | None:
    """A random operator of a class; None if it is too large or too small."""
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


def counted(listed: Sequence[Chosen]) -> Iterator[tuple[str, str, int]]:
    """(part, class, operators) for a table."""
    for part in PARTS:
        names = [one.operator.name for one in listed if one.part == part]
        yield from ((part, name, names.count(name)) for name in sorted(set(names)))
