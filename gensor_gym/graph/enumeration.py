"""Enumeration of all legal schedules of a task's space in batches, in the order of their numbers (`graph.coordinates`)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.coordinates import Coordinates, columns_of, set_column
from gensor_gym.graph.rules import fits
from gensor_gym.graph.tables.layout import ROW


def enumerate_rows(coordinates: Coordinates, ints: np.ndarray, batch: int) -> Iterator[np.ndarray]:
    """Yield all legal programs of the coordinates in batches of rows, int32 [<= batch, ROW], ordered by their numbers."""
    at = 0
    while at < coordinates.size:
        rows = np.empty((batch, ROW), dtype=np.int32)
        filled, at = _fill(coordinates.base, at, coordinates.size, *coordinates.packed, ints, rows)
        if filled:
            yield rows[:filled]


def count_schedules(ints: np.ndarray, sizes: np.ndarray) -> int:
    """Count the programs that `enumerate_rows` tries in a task's whole space. Some of them exceed the hardware's limits."""
    return math.prod(len(column.values) for column in columns_of(ints, sizes))


@compiled
def _fill(base, at, total, places, offsets, values, ints, rows):  # noqa: ANN001, ANN202
    """Write the legal programs from number `at` on into `rows` until it is full. Return (number of rows filled, next number)."""
    filled = 0
    while at < total and filled < rows.shape[0]:
        row = rows[filled]
        row[:] = base
        left = at
        at += 1
        for column in range(places.shape[0]):
            choices = offsets[column + 1] - offsets[column]
            set_column(row, column, offsets[column] + left % choices, places, values)
            left //= choices
        if fits(row, ints):
            filled += 1
    return filled, at
