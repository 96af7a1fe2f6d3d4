"""Predicted seconds of float32 convolutions on a CPU, for each kind of program that searches try and each order of the tensors.

With lanes along channels, programs fill the registers (`tilings`). With lanes along pixels, a convolution with one tap is a
product of matrices that stores whole lines. In MobileNetV2 with AVX2, it then takes 0.63 of the time from 24 to 144 channels of
56x56 pixels, and 0.72 from 16 to 96 channels of 112x112 pixels (one core of an Intel Xeon with AMX).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.column_descent import descend
from gensor_gym.graph.coordinates import Coordinates, opened
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts
from gensor_gym.graph.tables.layout import CONVOLUTION
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.orders.tilings import filled_by_pixels, filled_by_windows, filled_registers, fills_lines
from gensor_gym.operators.images import options
from gensor_gym.operators.traits import shares_lanes
from gensor_gym.operators.types import ITEM_BYTES, Operator

TURNED = 0.2
"""Share that remains of the predicted seconds of scattered stores if registers turn whole lines: 0.1 to 0.4 where we measured."""
PLANES, APART = 64, 2048
"""Number of planes of channels, and their size in bytes, from which on lanes of pixels are left out. They read from all planes in
turn, so from as many pages of memory, and take up to 1.6 times as long as predicted."""
LAST_AS_MEASURED = 1.25
"""Factor of the predicted seconds of depthwise convolutions with channels last, so that small gains are left alone. For eighteen
of 7x7 to 112x112 pixels on one core of an Intel Xeon with AVX-512, measured over predicted seconds were 0.7 to 2.7 times those
with channels first, in the geometric mean 1.2."""


def best_seconds(op: Operator, last: Operator, machine: Hardware) -> float:
    """Return the predicted seconds of the best program of a convolution with constant weights, in its orders.

    `last` is the same convolution whose result has channels last. 0 if lanes of channels have no program, as for an image of one
    pixel, whose orders are equal.
    """
    graph, beside = (ConstructionGraph(dataclasses.replace(one, frozen=True), machine, "extended") for one in (op, last))
    rows = filled_registers(graph)
    if not len(rows):
        return 0.0
    seconds, stored = graph.latencies(rows), beside.latencies(rows)
    turned = np.isfinite(stored) & [fills_lines(graph, Schedule(row)) for row in rows]
    seconds[turned] = stored[turned] + TURNED * (seconds - stored)[turned]
    return min(float(seconds.min()), _over_pixels(graph) if _reads_few_planes(op) else math.inf)


def depthwise_seconds(op: Operator, machine: Hardware) -> float:
    """Return the predicted seconds of the best program of a depthwise convolution, in its orders.

    Descents on the model start from the unscheduled program and, with channels last, from the best of `filled_by_windows`. The
    seconds with channels last are corrected by `LAST_AS_MEASURED`.
    """
    graph = ConstructionGraph(op, machine, "extended")
    rows = list(starts(graph.tables, graph.initial().row))
    if shares_lanes(op) and len(filled := filled_by_windows(graph)):
        rows.append(filled[graph.latencies(filled).argmin()])
    best = min(_descended(graph, opened(row, graph.tables.ints)) for row in rows)
    return best * LAST_AS_MEASURED if shares_lanes(op) else best


def _descended(graph: ConstructionGraph, row: np.ndarray, fixed: Collection[int] = ()) -> float:
    """Return the predicted seconds of a program with a tile for every level after a descent that keeps the columns `fixed`."""
    return descend(row, Coordinates(row, graph.coordinates.movable(fixed)), graph.tables, sweeps=False).seconds


def _reads_few_planes(op: Operator) -> bool:
    """Return whether a convolution is a product of matrices, and its image has few planes of channels or small ones."""
    channels, *taps = (op.extents[axis] for axis in op.reduce)
    plane = math.prod(op.extents[axis] for axis in op.spatial[-2:]) * ITEM_BYTES[op.dtype]
    is_product = set(taps) == {1} and options(op, stride=1, padding=0) == {"stride": 1, "padding": 0}
    return is_product and (channels < PLANES or plane < APART)


def _over_pixels(graph: ConstructionGraph) -> float:
    """Return the predicted seconds of a shifted product, after a descent from the best that fills registers; infinite if none."""
    rows = filled_by_pixels(graph)
    if not len(rows):
        return math.inf
    return _descended(graph, rows[graph.latencies(rows).argmin()], (CONVOLUTION,))
