"""The shortest plausible time of a correct kernel with warm caches; a faster measurement is rejected."""

from __future__ import annotations

from functools import lru_cache

from gensor_gym.cost.roofline import peak_rate
from gensor_gym.hardware.types import Hardware, MemoryLevel
from gensor_gym.operators.computation import Computation

MARGIN = 0.9
"""Figures of a machine are a few percent off; a time is IMPLAUSIBLE below this share of the floor."""
MEASURED_AGAIN = 0.55
"""The share of the bandwidth bound that counts once the host's figures were measured again. The probe may run
beside programs that use memory bandwidth: with one of two cores busy it read 27 GB/s instead of 38 (AMD EPYC, Zen 4). Cores do
not share arithmetic units, so the arithmetic bound stays."""


@lru_cache(maxsize=256)
def warm_floor(op: Computation, hw: Hardware, share: float = 1.0) -> float:
    """Seconds: arithmetic at peak, or a share of the bytes that cannot have stayed in inner caches at each level's bandwidth.

    The peak is that of the fastest unit that the operator may use: tensor cores where it is a product of their types.
    Stricter rules err here: a kernel timed in a loop may find all but the surplus of its data in a cache, so of b bytes
    only b minus the capacity of the caches inside a level must cross that level.
    """
    arithmetic = op.flops / peak_rate(op, hw)
    held, slowest = 0, 0.0
    for level in hw.memory:
        if not _lasts(level):
            continue
        slowest = max(slowest, max(0, op.compulsory_bytes - held) / level.bandwidth)
        held = max(held, _total(level, hw))
    return max(arithmetic, share * slowest)


def _lasts(level: MemoryLevel) -> bool:
    """Registers and GPU shared memory do not keep data from one kernel to the next."""
    return level.name not in ("register", "shared")


def _total(level: MemoryLevel, hw: Hardware) -> int:
    """Bytes of the whole device at a level: private caches count once per unit."""
    private = level.name == "l1" or (hw.kind == "cpu" and level.name == "l2")
    return level.capacity * (hw.units if private else 1)
