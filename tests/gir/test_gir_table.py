"""A space as a table says what the graph says, schedule by schedule."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym.dataflow.suite import make
from gensor_gym.dataflow.text import parse
from gensor_gym.gir.actions import NUM_ACTIONS, STOP
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.gir.space.table import GirTable
from tests.support.gir_cases import machine

OPERATORS = {"softmax": {"m": 6, "n": 19}, "rope": {"t": 2, "h": 3, "d": 10}, "norm": {"m": 3, "n": 1}}
CASES = [("softmax", "gir"), ("softmax", "monotone"), ("softmax", "powerfusion"), ("rope", "gir"), ("norm", "monotone")]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def table(request: pytest.FixtureRequest) -> GirTable:
    name, space = request.param
    return GirTable(GirGraph(make(name, **OPERATORS[name]), machine(8), space))


def test_numbers_are_rows(table: GirTable) -> None:
    numbers = np.arange(table.graph.size)
    rows = table.rows(numbers)
    assert np.array_equal(table.numbers(rows), numbers) and len(np.unique(rows, axis=0)) == len(numbers)
    assert table.numbers(table.graph.initial().row[None])[0] == 0


def test_it_has_the_legal_schedules_and_their_seconds(table: GirTable) -> None:
    rows = table.rows(np.arange(table.graph.size))
    assert np.array_equal(table.legal, table.graph.fits(rows)) and 0 < table.legal.sum() < len(rows)
    assert np.array_equal(table.seconds, table.graph.latencies(rows))
    assert np.array_equal(table.bytes[table.legal], table.graph.moved_bytes(rows[table.legal]))
    known = table.legal if table.graph.space == "gir" else table.reachable
    assert {row.tobytes() for batch in table.graph.enumerate() for row in batch} == {row.tobytes() for row in rows[known]}


def test_actions_are_those_of_the_graph(table: GirTable) -> None:
    legal = np.flatnonzero(table.legal)
    numbers = np.random.default_rng(0).choice(legal, min(12, len(legal)), replace=False)
    masks, after, rows = table.masks(numbers), table.successors(numbers), table.rows(numbers)
    assert np.array_equal(masks, table.graph.action_masks(rows)) and masks[:, STOP].all()
    for place, action in zip(*np.nonzero(masks), strict=True):
        reached = table.graph.transition(GirSchedule(rows[place]), int(action))
        assert table.numbers(reached.row[None])[0] == after[place, action]
        assert table.after(numbers[[place]], np.array([action]))[0] == after[place, action]
    assert (after[:, STOP] == numbers).all() and after.shape == (len(numbers), NUM_ACTIONS)


def test_what_can_be_reached_is_what_walks_reach(table: GirTable) -> None:
    seen, front = {0}, [table.graph.initial()]
    while front:
        later = [end for start in front for end in table.graph.successors(start).values()]
        front = []
        for number, schedule in zip(table.numbers(table.graph.stack(later)).tolist() if later else [], later, strict=True):
            if number not in seen:
                seen.add(number)
                front.append(schedule)
        if len(seen) > 100:
            break
    assert table.reachable[list(seen)].all() and not table.reachable[~table.legal].any()
    assert front or seen == set(np.flatnonzero(table.reachable).tolist())


def test_the_optimum_is_the_fastest_that_can_be_reached(table: GirTable) -> None:
    best, seconds = table.optimum
    number = int(table.numbers(best.row[None])[0])
    assert table.reachable[number] and seconds == table.graph.latency(best) == table.seconds[table.reachable].min()
    if table.graph.space == "gir":
        assert table.reachable.sum() == table.legal.sum() and seconds == table.graph.optimum()[1]


def with_values_to_place(count: int) -> GirGraph:
    several = range(count)
    lines = [*(f"a{i} = exp(x) + {i}.0" for i in several), "s = " + " + ".join(f"a{i}" for i in several)]
    lines += ["t = reduce_sum(s, axes=[1])", *(f"y{i} = a{i} * t" for i in several)]
    body = "".join(f"    {line}\n" for line in lines)
    text = f"def f(x: float32[4, 6]):\n{body}    return {', '.join(f'y{i}' for i in several)}\n"
    return GirGraph(parse(text), machine())


def test_a_space_that_is_too_large_is_refused() -> None:
    graph = with_values_to_place(6)
    with pytest.raises(ValueError, match=r"f@\w+: 3670016 schedules with 6 values to place, a table takes at most 1048576"):
        GirTable(graph)
    with pytest.raises(ValueError, match=r"3670016 schedules with 6 values to place"):
        graph.optimum()
    assert graph.least is None and 0 < len(next(graph.enumerate(batch=100))) <= 100


def test_what_would_take_hours_to_enumerate_is_refused() -> None:
    graph = with_values_to_place(8)
    with pytest.raises(ValueError, match=r"58720256 schedules with 8 values to place, expected at most 16777216 to enumerate"):
        graph.enumerate()
