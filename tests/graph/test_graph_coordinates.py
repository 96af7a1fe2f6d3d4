"""Coordinates: programs as vectors and numbers, subsets, even draws, and the one descent over them."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.column_descent import descend
from gensor_gym.graph.coordinates import Coordinates, opened
from gensor_gym.graph.enumeration import count_schedules
from gensor_gym.graph.tables.layout import KNOB, LEVEL

SMALL = ("reduce_sum(m=4, k=64)", "h200", "extended")
TASKS = [("gemm(m=48, n=40, k=24)", "h200", "gensor"), ("reduce_sum(m=64, k=400)", "cascade_lake", "extended")]


def test_every_program_has_a_vector_and_a_number() -> None:
    """And is listed in the order of the numbers."""
    graph = ConstructionGraph(*SMALL)
    coordinates, rows = graph.coordinates, np.concatenate([*graph.enumerate(1000)])
    assert coordinates.size == count_schedules(graph.tables.ints, graph.tables.sizes) > len(rows) > 100
    every, rows = graph.fits(coordinates.rows(coordinates.vectors(np.arange(coordinates.size)))), rows[::50]
    found = [coordinates.vector_of(row) for row in rows]
    vectors = np.array([vector for vector in found if vector is not None])
    np.testing.assert_array_equal(coordinates.rows(vectors), rows)
    numbers = coordinates.numbers(vectors)
    assert (np.diff(numbers) > 0).all()
    np.testing.assert_array_equal(coordinates.vectors(numbers), vectors)
    np.testing.assert_array_equal(np.flatnonzero(every)[::50], numbers)


def test_the_smallest_chain_of_a_long_axis() -> None:
    """The product of the largest one's four sizes, 57,680 ** 4, has no place in 64 bits."""
    columns = ConstructionGraph("gemv(m=48, k=57680)", "cascade_lake", "extended").coordinates.columns
    long = max(columns, key=lambda column: int(column.values.max()))
    assert long.values.max() >= 57680 and long.values[long.smallest].tolist() == [1] * long.values.shape[1]


def test_programs_of_a_subset_and_others() -> None:
    """A level not yet opened does not count, since opening it changes no program."""
    graph = ConstructionGraph(*SMALL)
    column = graph.coordinates.movable()[0]
    few = Coordinates(graph.coordinates.base, [column.only(np.array([0, 2]))])
    assert few.size == 2 and [few.vector_of(row) is not None for row in column.every(few.base)[:4]] == [True, False, True, False]
    closed = few.base.copy()
    closed[LEVEL] = 0
    assert few.vector_of(closed) is not None and np.array_equal(opened(closed, graph.tables.ints), few.base)
    knobs = [column.first - KNOB for column in graph.coordinates.columns if column.is_knob]
    assert knobs and [c.first for c in graph.coordinates.moving(knobs[:1]).columns if c.is_knob] == [KNOB + knobs[0]]
    assert column.first not in [c.first for c in graph.coordinates.movable([column.first])]
    other = few.base.copy()
    other[KNOB + knobs[0]] += 1
    assert few.vector_of(other) is None


def test_of_one_program_there_is_one_vector() -> None:
    alone = Coordinates(ConstructionGraph(*SMALL).coordinates.base, [])
    assert alone.size == 1 and alone.vectors(alone.numbers(np.empty((1, 0), dtype=np.int64))).shape == (1, 0)
    assert alone.draw(np.random.default_rng(0), 3).shape == (3, 0) and len(alone.rows(np.empty((3, 0), dtype=np.int64))) == 3


def test_draws_are_even() -> None:
    coordinates = ConstructionGraph(*SMALL).coordinates
    drawn = coordinates.draw(np.random.default_rng(0), 100_000)
    assert drawn.shape == (100_000, len(coordinates.columns))
    for column, choices in zip(drawn.T, coordinates.counts.tolist(), strict=True):
        shares = np.bincount(column, minlength=choices) / len(column)
        assert len(shares) == choices and np.abs(shares * choices - 1).max() < 0.5


@pytest.mark.parametrize("task", TASKS)
def test_a_descent_sets_column_after_column_to_the_best_it_may_be(task: tuple[str, str, str]) -> None:
    """As a plain one that evaluates all values of a column at once, of equal ones the first; wherever it ends."""
    graph, rng = ConstructionGraph(*task), np.random.default_rng(0)
    coordinates = Coordinates(graph.coordinates.base, graph.coordinates.movable())
    for _ in range(3):
        start = opened(graph.random_schedule(rng).row, graph.tables.ints)
        row, best, tried, idle, turn = start, float(graph.latencies(start[None])[0]), 1, 0, 0
        while idle < len(coordinates.columns):
            rows = coordinates.columns[turn % len(coordinates.columns)].every(row)
            seconds = graph.latencies(rows)
            at = int(np.argmin(seconds))
            idle, turn, tried = (0 if seconds[at] < best else idle + 1), turn + 1, tried + len(rows)
            if seconds[at] < best:
                row, best = rows[at], float(seconds[at])
        reached, swept = start.copy(), start.copy()
        found = descend(reached, coordinates, graph.tables, sweeps=False)
        whole = descend(swept, coordinates, graph.tables)
        assert np.array_equal(reached, row) and np.array_equal(swept, row) and found.seconds == whole.seconds == best
        assert found.tried == tried <= whole.tried and found.evaluated <= found.tried
        made, fastest = found.improvements.T
        assert (np.diff(made) > 0).all() and (np.diff(fastest) < 0).all() and (made[0], fastest[-1]) == (1, best)
        assert descend(reached, coordinates, graph.tables, sweeps=False).improvements.tolist() == [[1, best]]
