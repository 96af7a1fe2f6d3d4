"""All block tiles of the reduction, and the longest register tiles that divide each, as tables for the compiled search."""

from __future__ import annotations

import itertools
import math

import numpy as np

from gensor_gym.graph.resources import CODE_LIMIT_GPU
from gensor_gym.graph.tables.layout import MAX_AXES, SPATIAL_SLOTS
from gensor_gym.graph.tables.tables import Tables


def reduction_tiles(tables: Tables) -> tuple[np.ndarray, np.ndarray]:
    """Return (block tiles of the reduction int64 [R, 3], longest register tiles int64 [R, CODE_LIMIT_GPU + 1]).

    `longest[r, c]` is the largest product, at most c, of register tiles that divide block tile r and are sizes of their axes.
    """
    ladders = [tables.ladder(axis) for axis in range(SPATIAL_SLOTS, MAX_AXES)]
    tiles = list(itertools.product(*ladders))
    longest = np.zeros((len(tiles), CODE_LIMIT_GPU + 1), dtype=np.int64)
    for row, outer in zip(longest, tiles, strict=True):
        inside = [[n for n in ladder if size % n == 0] for ladder, size in zip(ladders, outer, strict=True)]
        products = {math.prod(inner) for inner in itertools.product(*inside)}
        for product in products:
            if product <= CODE_LIMIT_GPU:
                row[product] = product
        np.maximum.accumulate(row, out=row)
    return np.array(tiles, dtype=np.int64), longest
