"""What machines gain from channels last: the convolutions that read images in that order, and seconds of layouts.

On Hopper these are convolutions by wgmma, which also read the channels of weights innermost. On a CPU they are convolutions in
float32, and those in tile registers (AMX). They pack weights in any case, and with channels last they store whole vectors of
channels; tile registers then also read the image in place, or a copy of its lines.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection
from functools import lru_cache

import numpy as np

from gensor_gym.cache.sources import sources
from gensor_gym.cache.texts import kept
from gensor_gym.codegen.c.amx.tiling import LANES, channels_of_row
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.constants import PACK_ACROSS, PACK_BYTES, constant_values
from gensor_gym.cost.gpu.gpu import layout_kernel
from gensor_gym.dataflow.nodes import HALVES
from gensor_gym.graph.matrices.choices import tensor_core_choices
from gensor_gym.graph.tables.layout import ROW, TENSOR_CORE
from gensor_gym.graph.tables.tables import CONSTANT
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.orders.kinds import best_seconds, depthwise_seconds
from gensor_gym.operators.images import IMAGES, WEIGHTS, order_of
from gensor_gym.operators.kinds.winograd import TILE
from gensor_gym.operators.text import with_arguments
from gensor_gym.operators.types import Operator
from gensor_gym.winograd.graph import WinogradGraph

LAST, IN_ROWS = {"image": IMAGES[1]}, {"weights": WEIGHTS[1]}
"""Arguments of an operator whose image has channels last, and of a convolution whose weights have the channels innermost. A
depthwise convolution takes both together."""
FOLDER = "orders"
PART = 8
"""Output channels of a fast convolution are a multiple of this number: AVX2's lanes, half of AVX-512's."""
GAIN = 0.9
"""Largest predicted time of Winograd's algorithm, as a share of that of plain sums, with which it is taken.

On one core of an Intel Xeon with AVX-512, convolutions of 14x14 to 256x256 pixels took 0.52 to 0.70 of the time of plain sums.
Those of 7x7 pixels took 0.79 to 1.16, so small predicted gains are uncertain.
"""


def gains(machine: Hardware) -> Collection[str]:
    """Return the data types of convolutions that may gain from channels last on a machine."""
    if machine.kind == "cpu":
        return "float32", *(dict(machine.tensor_peak) if machine.lanes == LANES else ())
    return HALVES if machine.arch == "sm_90" else ()


def in_place(machine: Hardware) -> dict[str, str]:
    """Return the orders, as arguments, of weights that a convolution reads in place."""
    return IN_ROWS if machine.kind == "gpu" else {}


@lru_cache(maxsize=1024)
def is_fast(op: Operator, machine: Hardware) -> bool:
    """Return whether the machine has programs of a convolution, in its orders, that gain from channels last.

    They use wgmma, tile registers, or vectors of channels; the last may be half empty.
    """
    if machine.kind == "gpu":
        return 2 in tensor_core_choices(op, machine)
    outputs, channels = op.reads[1].view[:2]
    in_rows = not _is_in_tiles(op) or order_of(op, "image") == IMAGES[0] or channels_of_row(channels, op.dtype) > 0
    return op.dtype in gains(machine) and outputs % PART == 0 and in_rows


def _is_in_tiles(op: Operator) -> bool:
    return op.dtype != "float32"


@lru_cache(maxsize=1024)
def convolution_seconds(op: Operator, machine: Hardware) -> float:
    """Return the predicted seconds of a fast or depthwise convolution in its orders, without a summand equal for all orders.

    By wgmma and in tile registers these are the seconds to lay out an image with channels first, 0 if it is read in place. After
    tile registers, an element of a result with channels first is turned in registers, as in packing (our estimate).
    """
    if machine.kind == "gpu":
        tables, row = ConstructionGraph(op, machine, "extended").tables, np.zeros(ROW, np.int32)
        row[TENSOR_CORE] = 2
        return float(layout_kernel(row, tables.ints, tables.floats))
    if op.name == "depthwise_conv2d":
        return _kept(op, machine, lambda: depthwise_seconds(op, machine))
    if _is_in_tiles(op):
        tensors = {"image": op.reads[0].tensor, "result": op.output}
        turned = sum(tensor.size for name, tensor in tensors.items() if order_of(op, name) == IMAGES[0])
        return turned * _cycles(machine, PACK_BYTES) / machine.clock
    return _kept(op, machine, lambda: best_seconds(op, with_arguments(op, result=IMAGES[1]), machine))


def _kept(op: Operator, machine: Hardware, predict: Callable[[], float]) -> float:
    """Return the predicted seconds of a convolution, which the user's cache keeps; predicting them takes milliseconds."""
    return kept(FOLDER, [sources(), repr(op), repr(machine)], float.fromhex, predict, float.hex)


@lru_cache(maxsize=1024)
def by_winograd(op: Operator, machine: Hardware) -> tuple[Operator, float]:
    """Return a convolution with constant weights, by Winograd's algorithm if the model predicts a gain, and its seconds.

    The seconds are those of `convolution_seconds`, or of the best program of Winograd's algorithm.
    """
    plain = convolution_seconds(op, machine)
    if machine.kind != "cpu":
        return op, plain
    try:
        other = with_arguments(op, winograd=TILE)
    except ValueError:  # it has strides, other orders or other windows
        return op, plain
    seconds = _kept(other, machine, lambda: _winograd_seconds(other, machine))
    return (other, seconds) if seconds < GAIN * plain else (op, plain)


def _winograd_seconds(op: Operator, machine: Hardware) -> float:
    graph = WinogradGraph(dataclasses.replace(op, frozen=True), machine)
    return min((float(graph.latencies(rows).min()) for rows in graph.enumerate()), default=math.inf)  # no block fits a cache


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
