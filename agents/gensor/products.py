"""Programs of matrix products with constant weights that a search knows in addition to walks: their tiles fill the registers.

Walks may end at register tiles of one vector where tiles of three are faster: with the first program of the ranking, GPT-2's
product of 128 x 2304 x 768 took 1.55 ms and takes 1.35, that of 128 x 768 x 768 0.53 and 0.41 (two cores of an Intel Xeon with
AVX-512). Tiles of four vectors took up to 1.3 of the time that the model predicts, so they are left to walks.
"""

from __future__ import annotations

import itertools

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import make_row
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_LEVELS, SPATIAL_SLOTS
from gensor_gym.networks.orders.tilings import LEAST, legal, sizes_of, whole_size
from gensor_gym.operators.traits import is_product

_DOWN, _ALONG, _INNER = SPATIAL_SLOTS - 2, SPATIAL_SLOTS - 1, SPATIAL_SLOTS
_VECTORS = 3
"""Largest number of vectors in a row of a register tile."""


def is_weighted(graph: ConstructionGraph) -> bool:
    """Return whether a task is a float32 product of a matrix with constant weights on a CPU."""
    op = graph.operator
    is_matrix = is_product(op) and len(op.spatial) == 2 and len(op.reduce) == 1
    return is_matrix and op.frozen and op.dtype == "float32" and graph.hardware.kind == "cpu"


def filled_products(graph: ConstructionGraph) -> np.ndarray:
    """Return programs int32 [P, ROW] of a task of `is_weighted` with packed weights, whose accumulators fill the registers.

    Tasks have all rows and a core's share of the columns, or a share of the rows and all columns; the reduction is whole.
    """
    op, machine = graph.operator, graph.hardware
    sizes = {slot: sizes_of(graph, slot) for slot in (_DOWN, _ALONG, _INNER)}
    registers = int(machine.memory[0].capacity) // (4 * machine.lanes)
    rows, columns, inner = op.extents
    depth, shares = whole_size(sizes[_INNER], inner, 1), sorted({1, machine.units})
    found = []
    for vectors, height in itertools.product(range(1, _VECTORS + 1), sizes[_DOWN]):
        width = vectors * machine.lanes
        if width not in sizes[_ALONG] or not LEAST <= vectors * height <= registers - vectors - 1:
            continue
        for down, along, packed, order in itertools.product(shares, shares, (0, 1), (0, 1)):
            task = whole_size(sizes[_DOWN], -(-rows // down), height), whole_size(sizes[_ALONG], -(-columns // along), width)
            if (down > 1 and along > 1) or task[0] * down < rows or task[1] * along < columns:
                continue
            for near in {height, task[0]}:
                tiles = [[1] * MAX_AXES for _ in range(MAX_LEVELS)]
                tiles[0][_DOWN], tiles[0][_ALONG] = height, width
                tiles[1][_DOWN], tiles[1][_ALONG], tiles[1][_INNER] = near, width, depth
                for level in tiles[2:]:
                    level[_DOWN], level[_ALONG], level[_INNER] = *task, depth
                knobs = {"pack_a": packed, "pack_b": 1, "loop_order": order, "unroll": 4}
                found.append(make_row(tiles, [1] * MAX_AXES, 2, knobs))
    return legal(graph, found)
