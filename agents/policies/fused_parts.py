"""Fused operators for training, selecting and testing policies, with shapes drawn from fixed seeds.

The parts `fused/train`, `fused/validation` and `fused/test` have different shapes of the same factories. `fused/unseen` has a
factory that no policy was trained on: masked softmax reads a second tensor and has a map before its first reduction.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType

import numpy as np

from gensor_gym import hardware as machines
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.resolve import resolve_computation
from gensor_gym.dataflow.suite import FACTORIES, make
from gensor_gym.gir.actions import SPACES
from gensor_gym.gir.graph import GirGraph
from gensor_gym.registry import near

SEEN = ("softmax", "layernorm", "add_layernorm", "rmsnorm", "bias_gelu", "bias_tanh_gelu", "swiglu", "rope")
UNSEEN = ("masked_softmax",)
_DRAWN: Mapping[str, tuple[int, tuple[str, ...], int]] = MappingProxyType({
    "fused/train": (0, SEEN, 6), "fused/validation": (1, SEEN, 2), "fused/test": (2, SEEN, 1), "fused/unseen": (3, UNSEEN, 4),
})  # fmt: skip
"""Part -> (seed of its shapes, names of the operators' factories, number of shapes per factory)."""
_LARGEST = 1 << 23
"""Largest product of all extents of a drawn fused operator."""
DIGITS = 16


def fused_operators(given: str | Sequence[str]) -> list[Dataflow]:
    """Return the fused operators that parts (`fused/train`), calls (`softmax(m=64, n=96)`) or texts of graphs name.

    ValueError names an invalid entry.
    """
    found: list[Dataflow] = []
    for one in [given] if isinstance(given, str) else given:
        found += part(one) if one.startswith("fused/") else [_fused(one)]
    return found


@cache
def part(name: str) -> tuple[Dataflow, ...]:
    """Return the fused operators of a part such as `fused/train`. ValueError for an unknown part lists the known parts."""
    if name not in _DRAWN:
        raise ValueError(f"part {name!r}: expected one of {', '.join(_DRAWN)}{near(name, _DRAWN)}")
    seed, factories, count = _DRAWN[name]
    rng = np.random.default_rng(seed)
    return tuple(_drawn(factory, rng) for factory in factories for _ in range(count))


def parts_of(given: str | Sequence[str]) -> list[str]:
    """Return the parts that contain some of the given operators, without the prefix `fused/`; ["train"] if no part does."""
    chosen = set(fused_operators(given))
    return sorted(name.partition("/")[2] for name in _DRAWN if chosen.intersection(part(name))) or ["train"]


def fused_fingerprints(ops: Iterable[Dataflow], hardware: str, space: str) -> dict[str, str]:
    """Return {text of an operator: fingerprint of its task}, a hash that changes with space, rules or model.

    The hash covers the set of legal schedules exactly and their seconds to six digits.
    """
    return {str(op): _fingerprint(op, hardware, space) for op in ops}


def is_fused(space: str) -> bool:
    """Return whether `space` is the name of a space of fused operators."""
    return space in SPACES


@cache
def _fingerprint(op: Dataflow, hardware: str, space: str) -> str:
    table = GirGraph(op, machines.get(hardware), space).table
    mantissa, exponent = np.frexp(table.seconds[table.legal])
    whole = hashlib.sha256(f"{op} {space}".encode() + np.packbits(table.legal).tobytes())
    whole.update(np.rint(mantissa * 2.0**20).astype("<i4").tobytes() + exponent.astype("<i4").tobytes())
    return whole.hexdigest()[:DIGITS]


def _fused(text: str) -> Dataflow:
    found = resolve_computation(text)
    if not isinstance(found, Dataflow):
        raise ValueError(f"{text}: expected a fused operator, or a part: {', '.join(_DRAWN)}")
    return found


def _drawn(factory: str, rng: np.random.Generator) -> Dataflow:
    """Make a fused operator with log-uniformly drawn extents; half of the last extents are rounded to a multiple of 16."""
    names = [one.name for one in inspect.signature(FACTORIES[factory]).parameters.values() if one.annotation == "int"]
    while True:
        extents = {name: int(2 ** rng.uniform(*((1, 6) if name == "h" else (4, 12)))) for name in names}
        last = names[-1]
        extents[last] = max(2, extents[last] // 16 * 16 if rng.integers(2) else extents[last] // 2 * 2)
        if np.prod(list(extents.values())) <= _LARGEST:
            return make(factory, **extents)
