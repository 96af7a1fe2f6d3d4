"""Rankings of float32 convolutions with channels last in networks: programs that fill the registers, without walks.

In a network, weights, images and results are in no near cache. On one core of an Intel Xeon with AVX-512, in networks of equal
layers, programs of `tilings` take 0.7 to 0.99 of the time of those that walks end at. Of ResNet-50's 3x3 convolutions, those of
14x14 pixels take 0.80, of 28x28 0.86, of 56x56 0.87, and of 7x7 0.7 (`in_blocks`); its 1x1 convolutions of 56x56 pixels from 64
to 256 channels take 0.77. With AVX2 those of 56x56 and 28x28 pixels take 0.96 to 0.98, and 1x1 convolutions are walked.

Their times over those that the model predicts differ by kind, so the ranking corrects them. With taps, tiles of two vectors of
channels take 0.87 to 1.0, wider ones 1.0 to 1.2; without taps 0.97 to 1.03 and 1.03 to 1.1. With lines of seven or eight pixels
and unrolled taps they take 0.93 to 0.96, with fourteen pixels 1.0 to 1.1. If a large result is stored pixel by pixel, those
without taps take 0.72 to 0.78 with at most two pixels of a line and 0.81 to 0.86 with more; if some channels of all pixels are
stored first, 0.88 to 1.02, in ResNet-50 up to 1.3.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.codegen.c.amx.tiling import LANES
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.cpu.cpu import CROWD
from gensor_gym.graph.knobs import KNOB_INDEX
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, SPATIAL_SLOTS, TILE, slot_of
from gensor_gym.networks.orders.tilings import OF_LINES, filled_registers, in_blocks, with_columns_of_taps
from gensor_gym.operators.images import IMAGES, order_of
from gensor_gym.operators.types import ITEM_BYTES

TWO, TWO_WITH_TAPS = 0.95, 0.9
"""Factors of the predicted seconds of register tiles with two vectors of channels."""
LINES, UNROLLED, CROWDED = 0.97, 0.97, 1.08
"""Factors for windows: of lines of pixels, of unrolled taps, and of register tiles with more accumulators than `CROWD`."""
APART, ACROSS = 1.15, 1.08
"""Factors for a large result: of programs that store parts of a pixel's channels at different times, and of register tiles with
more than two pixels of a line. Pixels below one another are in as many streams, which hardware prefetchers follow."""
CACHES = 2
"""Number of L2 caches whose size weights exceed if only programs in blocks are tried; others read them again for other pixels."""


def has_channels_last(graph: ConstructionGraph) -> bool:
    """Return whether a task is a float32 convolution of a network on a CPU that reads or stores an image with channels last."""
    op = graph.operator
    is_image = op.name == "conv2d" and op.frozen and IMAGES[1] in (order_of(op, "image"), order_of(op, "result"))
    return is_image and op.dtype == "float32" and graph.hardware.kind == "cpu"


def ranked_programs(graph: ConstructionGraph) -> tuple[np.ndarray, np.ndarray]:
    """Return programs int32 [P, ROW] of a task of `has_channels_last`, and their corrected seconds; none if walks are better."""
    rows, far = filled_registers(graph), _reads_far(graph)
    if _has_taps(graph):
        rows = np.concatenate([rows, with_columns_of_taps(graph, rows)])
    fast = _has_taps(graph) or graph.hardware.lanes == LANES
    rows = in_blocks(graph, rows) if far else rows if fast else rows[:0]
    return rows, corrected(rows, graph.latencies(rows), graph)


def corrected(rows: np.ndarray, seconds: np.ndarray, graph: ConstructionGraph) -> np.ndarray:
    """Correct the model's `seconds` [P] of programs `rows` [P, ROW] of a task of `has_channels_last`."""
    op, machine = graph.operator, graph.hardware
    slots = [slot_of(axis, len(op.spatial)) for axis in range(len(op.axes))]
    channel, down, across = slots[op.channel_axis], SPATIAL_SLOTS - 2, SPATIAL_SLOTS - 1
    register, task = (rows[:, TILE + level * MAX_AXES : TILE + (level + 1) * MAX_AXES] for level in (0, 2))
    columns, channels = op.extents[op.spatial[-1]], op.extents[op.channel_axis]
    factors, width = np.ones(len(rows)), register[:, channel]
    factors[width == OF_LINES * machine.lanes] *= TWO_WITH_TAPS if _has_taps(graph) else TWO
    if _has_taps(graph):
        factors[(register[:, down] == 1) & (columns % register[:, across] == 0)] *= LINES
        factors[register[:, slots[op.reduce[1]]] == op.extents[op.reduce[1]]] *= UNROLLED
        factors[width // machine.lanes * register[:, down] * register[:, across] > CROWD] *= CROWDED
    if order_of(op, "result") == IMAGES[1] and op.output.size * ITEM_BYTES[op.dtype] > _l2(graph) // 2:
        pixel_by_pixel = (rows[:, KNOB + KNOB_INDEX["loop_order"]] == 1) & (task[:, channel] >= channels)
        factors[~pixel_by_pixel & (width < channels)] *= APART
        factors[register[:, across] > 2] *= ACROSS
    return seconds * factors


def _has_taps(graph: ConstructionGraph) -> bool:
    return any(graph.operator.extents[a] > 1 for a in graph.operator.reduce[1:])


def _reads_far(graph: ConstructionGraph) -> bool:
    return _has_taps(graph) and graph.operator.reads[1].tensor.size * ITEM_BYTES[graph.operator.dtype] > CACHES * _l2(graph)


def _l2(graph: ConstructionGraph) -> int:
    return graph.hardware.level("l2").capacity
