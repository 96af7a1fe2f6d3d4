"""What machines gain from channels last: the convolutions that read images in that order, and seconds of layouts.

On Hopper these are convolutions by wgmma, which also read the channels of weights innermost. On a CPU they are convolutions in
tile registers (AMX), which pack weights in any case; the image of a convolution is then read in place, or copied line by line.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import numpy as np

from gensor_gym.codegen.c.amx.tiling import LANES, ROW_BYTES
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.constants import PACK_ACROSS, PACK_BYTES, constant_values
from gensor_gym.cost.gpu.gpu import layout_kernel
from gensor_gym.dataflow.nodes import HALVES
from gensor_gym.graph.matrices.choices import tensor_core_choices
from gensor_gym.graph.tables.layout import ROW, TENSOR_CORE
from gensor_gym.graph.tables.tables import CONSTANT
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.images import IMAGES, WEIGHTS, order_of
from gensor_gym.operators.types import ITEM_BYTES, Operator

LAST, IN_ROWS = {"image": IMAGES[1]}, {"weights": WEIGHTS[1]}
"""Arguments of an operator whose image has channels last, and of a convolution whose weights have the channels innermost."""


def gains(machine: Hardware) -> Collection[str]:
    """Return the data types of convolutions that may gain from channels last on a machine."""
    if machine.kind == "cpu":
        return dict(machine.tensor_peak) if machine.lanes == LANES else ()
    return HALVES if machine.arch == "sm_90" else ()


def in_place(machine: Hardware) -> dict[str, str]:
    """Return the orders, as arguments, of weights that a convolution reads in place."""
    return IN_ROWS if machine.kind == "gpu" else {}


@lru_cache(maxsize=1024)
def is_fast(op: Operator, machine: Hardware) -> bool:
    """Return whether the machine has programs of a convolution, in its orders, that use wgmma or tile registers."""
    if machine.kind == "gpu":
        return 2 in tensor_core_choices(op, machine)
    outputs, channels = op.reads[1].view[:2]
    whole = channels % (ROW_BYTES // ITEM_BYTES[op.dtype]) == 0 or order_of(op, "image") == IMAGES[0]
    return op.dtype in gains(machine) and outputs % LANES == 0 and whole


@lru_cache(maxsize=1024)
def layout_seconds(op: Operator, machine: Hardware) -> float:
    """Return the predicted seconds that a fast convolution takes to lay out operands before it computes.

    0 if it reads them in place.
    """
    if machine.kind == "cpu":
        is_first = order_of(op, "image") == IMAGES[0]
        return op.reads[0].tensor.size * _cycles(machine, PACK_BYTES) / machine.clock if is_first else 0.0
    tables, row = ConstructionGraph(op, machine, "extended").tables, np.zeros(ROW, np.int32)
    row[TENSOR_CORE] = 2
    return float(layout_kernel(row, tables.ints, tables.floats))


def scattering_seconds(op: Operator, machine: Hardware) -> float:
    """Return the predicted seconds that a fast convolution takes more to store its result with channels first than last.

    0 on a GPU. On a CPU, an element is turned in registers, as in packing (our estimate).
    """
    return op.output.size * _cycles(machine, PACK_BYTES) / machine.clock if machine.kind == "cpu" else 0.0


def turning_seconds(nbytes: int, machine: Hardware) -> float:
    """Return the seconds of a kernel that transposes an image of `nbytes`.

    On a GPU, the model has the same formula for laying out operands.
    """
    if machine.kind == "cpu":
        return machine.launch_overhead + nbytes * _cycles(machine, PACK_ACROSS) / machine.clock
    levels = {level.name: level for level in machine.memory}
    return machine.launch_overhead + 2 * nbytes / levels["dram" if 2 * nbytes > levels["l2"].capacity else "l2"].bandwidth


def _cycles(machine: Hardware, constant: int) -> float:
    return constant_values(machine.name)[constant - CONSTANT]
