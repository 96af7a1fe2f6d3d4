"""Constant weights are timed as in networks: between two uses of one copy, other data have passed through the caches.

A trial on a CPU therefore has several copies of a kernel's weights, and of the workspace in which it packs them. Calls read them
in turn. With one copy, small weights would stay in the L2 cache, where a network's call does not find them: of ResNet-50's
convolutions with 7x7 pixels, the fastest program with one copy took up to 1.3 times as long in the network as the fastest there
(Intel Xeon with AMX). If a program divides output channels among many cores, a core's share of all copies may still fit in its
cache (`MOST_BYTES`).
"""

from __future__ import annotations

from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.stats.timing import PROTOCOL
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.types import Operator

WEIGHTS_APART = 4
"""Version of the timing protocol for operators with constant weights: protocol 3, on CPUs with other weights at every call."""
FROZEN = "frozen "
"""Beginning of the text of an operator with constant weights."""
BEYOND, MOST_BYTES = 4, 1 << 26
"""Size of all copies of the weights together, as a multiple of the L2 caches of the cores that run a kernel, and its limit in
bytes (our choices)."""


def bytes_apart(op: Computation, hw: Hardware) -> int:
    """Return the bytes that all copies of a computation's weights have together: 0 without constant weights, and on GPUs."""
    if not (isinstance(op, Operator) and op.frozen) or hw.kind != "cpu":
        return 0
    return min(MOST_BYTES, BEYOND * hw.units * int(hw.level("l2").capacity))


def protocol_of(op: Computation | str) -> int:
    """Return the version of the timing protocol of trials of a computation, or of one with this text."""
    return WEIGHTS_APART if str(op).startswith(FROZEN) else PROTOCOL
