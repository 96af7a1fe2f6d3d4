"""Constant weights are timed as in networks: between two uses of one copy, other data have passed through the caches.

A kernel's trial therefore has several copies of its weights, which its calls read in turn (protocol `WEIGHTS_APART`). With one
copy, small weights would stay in the L2 cache, where a network's call does not find them: of ResNet-50's convolutions with 7x7
pixels, the fastest program with one copy took up to 1.3 times as long in the network as the fastest there (Intel Xeon with AMX).
"""

from __future__ import annotations

from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.stats.timing import PROTOCOL
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.types import Operator

WEIGHTS_APART = 4
"""Version of the timing protocol for a CPU's kernels with constant weights: protocol 3 with other weights at every call."""
PROTOCOLS = PROTOCOL, WEIGHTS_APART
"""Versions of this version's timing protocols."""
BEYOND = 4
"""Size of all copies of the weights together, as a multiple of the L2 caches of the cores that run a kernel (our choice)."""


def bytes_apart(op: Computation, hw: Hardware) -> int:
    """Return the bytes that all copies of a computation's weights have together: 0 without constant weights, and on GPUs."""
    if not (isinstance(op, Operator) and op.frozen) or hw.kind != "cpu":
        return 0
    return BEYOND * hw.units * int(hw.level("l2").capacity)


def protocol_of(op: Computation, hw: Hardware) -> int:
    """Return the version of the timing protocol of a computation's trials on a machine."""
    return WEIGHTS_APART if bytes_apart(op, hw) else PROTOCOL
