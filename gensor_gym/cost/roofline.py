"""The roofline floor: a time that no correct kernel beats."""

from __future__ import annotations

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Contract
from gensor_gym.graph.matrices.choices import tensor_core_choices
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.kinds.winograd import SHARE
from gensor_gym.operators.traits import is_product
from gensor_gym.operators.types import Operator

CAP_OVER_FLOOR = 1000.0
"""Time T_cap, beyond which the final reward is 0, divided by the roofline floor."""


def roofline_floor(op: Computation, hardware: Hardware) -> float:
    """Compute a lower bound on an operator's time in seconds: its arithmetic, or its compulsory bytes, at full rate.

    The bound is the larger of flops over the peak rate and bytes over the bandwidth of the memory level that contains them. Data
    that fits in a shared cache may stay there between calls (warm timing), so the cache's bandwidth counts, not DRAM's (Williams
    et al. 2009, with the cache level chosen by footprint).
    """
    return max(arithmetic_seconds(op, hardware), op.compulsory_bytes / resident_bandwidth(op, hardware))


def arithmetic_seconds(op: Computation, hardware: Hardware) -> float:
    """Return the seconds of an operator's arithmetic at peak rate; by Winograd's algorithm it has fewer multiply-adds."""
    return op.flops * (SHARE if isinstance(op, Operator) and op.winograd else 1) / peak_rate(op, hardware)


def peak_rate(op: Computation, hardware: Hardware) -> float:
    """Return an upper bound on operations per second, at full clock, of tensor cores or tile registers that have the type."""
    flops = dict(hardware.peak).get(op.dtype) or hardware.peak_of("float32")
    if isinstance(op, Dataflow):
        products = {node.operator.dtype for _, node in op.nodes if isinstance(node, Contract)}
        return max(flops, *(rate for dtype, rate in hardware.tensor_peak if dtype in products), 0.0)
    in_tiles = hardware.kind == "cpu" and isinstance(op, Operator) and is_product(op)
    if in_tiles or (isinstance(op, Operator) and len(tensor_core_choices(op, hardware)) > 1):
        return max(flops, dict(hardware.tensor_peak).get(op.dtype, 0.0))
    return flops


def resident_bandwidth(op: Computation, hardware: Hardware) -> float:
    """Return the bytes per second of the innermost cache level that can contain all compulsory bytes (`bandwidth_of`)."""
    return bandwidth_of(op.compulsory_bytes, hardware)


def bandwidth_of(size: int, hardware: Hardware) -> float:
    """Return the bytes per second of the innermost cache level that can contain `size` bytes, else of the outermost memory.

    Private caches count once per unit. Registers and GPU shared memory do not outlive a kernel and are left out.
    """
    lasting = [m for m in hardware.memory[:-1] if m.name in ("l1", "l2", "l3")]
    for level in lasting:
        private = hardware.kind == "cpu" and level.name in ("l1", "l2")
        if size <= level.capacity * (hardware.units if private else 1):
            return level.bandwidth
    return hardware.memory[-1].bandwidth
