"""Rules, actions and spaces of fused operators, against a second implementation and by going through all."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.suite import make
from gensor_gym.gir.actions import ACTIONS, NUM_ACTIONS, STOP
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.placement import Level
from gensor_gym.gir.schedule import FIELDS, HEADER, MOST_PLACED, ROW, GirSchedule
from tests.support import oracle_gir
from tests.support.gir_cases import SUITE, machine, of_suite, random_rows, random_schedule
from tests.support.row_dataflows import random_rows_dataflow
from tests.support.thorough import thorough_but

SMALL = ("softmax(m=3, n=5)", "layernorm(m=2, n=17)", "add_layernorm(m=5, n=3)", "rope(t=2, h=2, d=6)", "norm(m=2, n=3)")


def graph_of(text: str, space: str = "gir", lanes: int = 16) -> GirGraph:
    name, _, rest = text.partition("(")
    sizes = dict(part.split("=") for part in rest.rstrip(")").split(", "))
    return GirGraph(make(name, **{key: int(value) for key, value in sizes.items()}), machine(lanes), space)


def operators(seeds: range) -> list[Dataflow]:
    found = [of_suite(name, np.random.default_rng([seed, place])) for place, name in enumerate(SUITE) for seed in seeds]
    return found + [random_rows_dataflow(seed) for seed in seeds]


def accepted(seeds: range) -> list[GirGraph]:
    found = []
    for number, operator in enumerate(operators(seeds)):
        try:
            found.append(GirGraph(operator, machine((16, 8, 4)[number % 3])))
        except ValueError as error:
            assert operator.name in str(error)
    return found


@pytest.mark.parametrize("seeds", thorough_but([range(3), range(3, 40)], range(3)), ids=str)
def test_rules_agree_with_the_oracle(seeds: range) -> None:
    answers = []
    for number, graph in enumerate(accepted(seeds)):
        rng = np.random.default_rng(number)
        rows = random_rows(graph, rng, 60)
        strange = random_rows(graph, rng, 20)  # levels where no cell is, and such as loads do not have
        strange[np.arange(20), HEADER + rng.integers(MOST_PLACED, size=20)] = rng.integers(len(Level), size=20)
        small = np.concatenate([random_rows(graph, rng, 40), strange])
        small[:, :HEADER] = np.minimum(small[:, :HEADER], rng.integers(2, size=(60, HEADER)))
        rows = np.concatenate([rows, small])
        expected = [oracle_gir.is_legal(graph.nest, graph.hardware, GirSchedule(row)) for row in rows]
        wrong = np.flatnonzero(graph.fits(rows) != expected)
        assert not len(wrong), f"{graph.operator}: {GirSchedule(rows[wrong[0]])}, expected {expected[wrong[0]]}"
        answers += expected
    assert 0.1 < np.mean(answers) < 0.9


@pytest.mark.parametrize("space", thorough_but(["gir", "monotone"], "gir"))
def test_masks_are_the_actions_that_change_a_schedule_to_a_legal_one(space: str) -> None:
    for text in SMALL:
        graph = graph_of(text, space)
        for schedule in (graph.initial(), *(random_schedule(graph, np.random.default_rng(seed)) for seed in range(4))):
            legal = {STOP}
            for number, action in enumerate(ACTIONS[1:], 1):
                row = schedule.row.copy()
                if action.primitive == "place":
                    row[HEADER + action.cell] = action.level
                else:
                    place = GirSchedule.places[action.target]
                    row[place] += 1 if action.primitive == "raise" else -1
                    if not 0 <= row[place] < len(FIELDS[place].values):
                        continue
                after = GirSchedule(row)
                fewer = space == "gir" or graph.moved_bytes(row[None])[0] <= graph.moved_bytes(schedule.row[None])[0]
                if after != schedule and oracle_gir.is_legal(graph.nest, graph.hardware, after) and fewer:
                    legal.add(number)
                    assert graph.transition(schedule, number) == after == graph.successors(schedule)[number]
                else:
                    assert graph.transition(schedule, number) == schedule
            mask = graph.action_mask(schedule)
            assert mask.shape == (NUM_ACTIONS,) and set(np.flatnonzero(mask).tolist()) == legal
            assert set(graph.successors(schedule)) == legal - {STOP}


def test_a_batch_has_the_masks_of_its_rows() -> None:
    graph = graph_of("layernorm(m=7, n=33)", "monotone")
    rows = np.stack([random_schedule(graph, np.random.default_rng(seed)).row for seed in range(8)])
    masks = graph.action_masks(rows)
    assert all(np.array_equal(mask, graph.action_mask(GirSchedule(row))) for mask, row in zip(masks, rows, strict=True))
    assert graph.action_masks(rows[:0]).shape == (0, NUM_ACTIONS)


@pytest.mark.parametrize("text", SMALL[:3])
def test_enumeration_is_every_legal_schedule_once(text: str) -> None:
    graph = graph_of(text, lanes=4)
    found = np.concatenate(list(graph.enumerate(batch=100)))
    assert max(len(batch) for batch in graph.enumerate(batch=100)) <= 100
    keys = {row.tobytes() for row in found}
    assert len(keys) == len(found)
    expected = set()
    for levels in itertools.product(range(len(Level)), repeat=len(graph.nest.crossing)):
        placed = [*levels] + [0] * (MOST_PLACED - len(levels))
        least = [GirSchedule(np.array([vector, 0, 0, 0, 0, *placed], np.int32)) for vector in range(2)]
        if not any(oracle_gir.is_legal(graph.nest, graph.hardware, schedule) for schedule in least):
            continue  # no other header makes a placement legal
        for header in itertools.product(*(range(len(field.values)) for field in FIELDS)):
            row = np.array([*header, *placed], np.int32)
            if oracle_gir.is_legal(graph.nest, graph.hardware, GirSchedule(row)):
                expected.add(row.tobytes())
    assert keys == expected


@pytest.mark.parametrize("text", SMALL)
def test_the_optimum_is_the_fastest_of_all(text: str) -> None:
    graph = graph_of(text)
    rows = np.concatenate(list(graph.enumerate()))
    best, seconds = graph.optimum()
    assert seconds == graph.latency(best) == graph.latencies(rows).min() and graph.is_legal(best)
    assert graph.latency(best) <= graph.latency(graph.initial())


def test_parts_of_the_latency_are_named_and_illegal_schedules_take_for_ever() -> None:
    graph = graph_of("softmax(m=3, n=5)")
    terms = graph.terms(graph.initial())
    assert all(value >= 0 for value in terms.values()) and 0 < graph.latency(graph.initial()) <= 2 * sum(terms.values())
    illegal = GirSchedule(np.array([3, *[0] * (ROW - 1)], np.int32))
    assert not graph.is_legal(illegal) and graph.latency(illegal) == np.inf


def test_evaluations_are_counted_and_paid_for() -> None:
    graph, paid = graph_of("softmax(m=3, n=5)"), []
    graph.meter = paid.append
    graph.latencies(np.stack([graph.initial().row] * 3))
    graph.terms(graph.initial())
    assert graph.evaluations == 4 and paid == [3, 1]


@pytest.mark.parametrize("text", SMALL)
def test_no_step_of_the_monotone_space_moves_more_bytes(text: str) -> None:
    graph, rng = graph_of(text, "monotone"), np.random.default_rng(0)
    schedule = graph.initial()
    before = first = int(graph.moved_bytes(schedule.row[None])[0])
    for _ in range(graph.horizon):
        legal = np.flatnonzero(graph.action_mask(schedule))[1:]
        schedule = graph.transition(schedule, int(rng.choice(legal)))
        after = int(graph.moved_bytes(schedule.row[None])[0])
        assert after <= before and graph.is_legal(schedule)
        before = after
    assert after < first or not any(not graph.nest.cell[name].is_load for name in graph.nest.crossing)


def test_walks_are_legal_and_reach_every_level() -> None:
    graph, seen = graph_of("softmax(m=4, n=133)"), set()
    for seed in range(16):
        end = graph.random_schedule(np.random.default_rng(seed), steps=40)
        assert graph.is_legal(end) and graph.is_legal(graph.random_schedule(np.random.default_rng(seed)))
        seen |= set(end.placement(len(graph.nest.crossing)))
    assert seen == set(Level)
