"""The shortest plausible time of a correct kernel with warm caches. A shorter measurement is rejected."""

from __future__ import annotations

from functools import lru_cache

from gensor_gym.cost.roofline import arithmetic_seconds
from gensor_gym.hardware.host import doubted
from gensor_gym.hardware.types import Hardware, MemoryLevel
from gensor_gym.operators.computation import Computation

MARGIN = 0.9
"""A measured time below this share of the shortest plausible time is IMPLAUSIBLE: a machine's rates may be a few percent off."""
MEASURED_AGAIN = 0.55
"""Share of the memory time that counts in the shortest plausible time after the host's rates were measured again.

The probe may run next to programs that use memory bandwidth: with one of two cores busy it read 27 GB/s instead of 38 (AMD EPYC,
Zen 4). Cores do not share arithmetic units, so the arithmetic time counts fully.
"""


@lru_cache(maxsize=256)
def warm_floor(op: Computation, hw: Hardware, share: float = 1.0) -> float:
    """Return the shortest plausible seconds of a kernel: arithmetic at peak rate or, if longer, a share of the memory time.

    The peak rate is that of the fastest unit that the operator may use: tensor cores if it is a product of their types. The
    memory time is that of the slowest level. A kernel timed in a loop may find data in caches, so of b bytes only b minus the
    capacity of the caches inside a level must cross that level. Stricter rules would reject correct times.
    """
    arithmetic = arithmetic_seconds(op, hw)
    held, slowest = 0, 0.0
    for level in hw.memory:
        if not _lasts(level):
            continue
        slowest = max(slowest, max(0, op.compulsory_bytes - held) / level.bandwidth)
        held = max(held, _total(level, hw))
    return max(arithmetic, share * slowest)


def is_excused(op: Computation, hw: Hardware, seconds: float) -> bool:
    """Whether a time below the shortest plausible time is still plausible with new rates of this machine.

    Such a time raises doubts about the host's rates, so they are measured again, once per process.
    """
    return hw.name == "host" and seconds >= MARGIN * warm_floor(op, doubted(), MEASURED_AGAIN)


def _lasts(level: MemoryLevel) -> bool:
    """Return whether a memory level keeps data from one kernel to the next: all do except registers and a GPU's shared memory."""
    return level.name not in ("register", "shared")


def _total(level: MemoryLevel, hw: Hardware) -> int:
    """Return the capacity of a memory level on the whole device, in bytes. A private cache counts once per unit (core or SM)."""
    private = level.name == "l1" or (hw.kind == "cpu" and level.name == "l2")
    return level.capacity * (hw.units if private else 1)
