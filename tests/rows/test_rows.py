"""Graphs of rows by themselves, over a schedule of two numbers: transitions, masks, counting, walks, text."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import numpy as np
import pytest

from gensor_gym.rows.fields import Field, FieldAction, FieldSchedule, names_of_moves, step_fields
from gensor_gym.rows.steps import StepGraph

FIELDS = (Field("block", (1, 2, 4, 8), "rows of a block"), Field("depth", (1, 3), "blocks under way"))
ROWS = np.array([(block, depth) for block in range(4) for depth in range(2)], np.int32)
"""All there are."""


class Pair(FieldSchedule):
    """A block and a depth."""

    __slots__ = ()
    fields, length, tops = FIELDS, 2, np.array([3, 1], np.int32)

    @classmethod
    def parse(cls, text: str) -> Pair:
        return cls(cls.row_of(cls.words(text)))


class Seconds:
    """One second a block and two a depth."""

    def terms(self, rows: np.ndarray) -> np.ndarray:
        values = Pair.columns(rows)
        blocks, depths = values["block"] * 1.0, values["depth"] * 2.0
        return np.stack([blocks + depths, blocks, depths], axis=1)


class Pairs(StepGraph[Pair]):
    """Pairs whose product is at most 8."""

    kind, parts, model, horizon = Pair, ("blocks", "depths"), Seconds(), 9
    actions = (FieldAction("stop"), *(FieldAction(*move) for move in names_of_moves(FIELDS)))

    def initial(self) -> Pair:
        return Pair(np.zeros(2, np.int32))

    def fits(self, rows: np.ndarray) -> np.ndarray:
        values = Pair.columns(rows)
        return values["block"] * values["depth"] <= 8

    def applied(self, rows: np.ndarray) -> np.ndarray:
        return step_fields(np.repeat(rows[:, None], len(self.actions), axis=1), Pair.tops)

    def random_schedule(self, rng: np.random.Generator, steps: int | None = None, start: Pair | None = None) -> Pair:
        return self.walk(rng, start or self.initial(), steps or self.horizon)

    def enumerate(self, batch: int = 65536) -> Iterator[np.ndarray]:
        yield ROWS[self.fits(ROWS)]


def test_actions_are_named_in_the_order_in_which_they_are_applied() -> None:
    assert list(map(str, Pairs.actions)) == ["stop", "raise block", "lower block", "raise depth", "lower depth"]
    after = Pairs().applied(np.array([[1, 0]], np.int32))[0]
    assert after.tolist() == [[1, 0], [2, 0], [0, 0], [1, 1], [1, 0]]


def test_masks_and_transitions_are_those_of_every_pair_by_hand() -> None:
    graph = Pairs()
    (rows,) = graph.enumerate()
    assert [Pair(row).value("block") * Pair(row).value("depth") for row in rows] == [1, 3, 2, 6, 4, 8]
    masks = graph.action_masks(rows)
    for row, mask in zip(rows, masks, strict=True):
        for action, (block, depth) in enumerate(((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))):
            there = 0 <= row[0] + block < 4 and 0 <= row[1] + depth < 2
            legal = action == 0 or (there and FIELDS[0].values[row[0] + block] * FIELDS[1].values[row[1] + depth] <= 8)
            after, done = graph.transitions(row[None], np.array([action]))
            wanted = row + (block, depth) if legal and action else row
            assert mask[action] == legal and done[0] == (legal and action > 0) and after[0].tolist() == wanted.tolist()
            assert graph.transition(Pair(row), action).row.tolist() == wanted.tolist()
        assert list(graph.successors(Pair(row))) == np.flatnonzero(mask)[1:].tolist()


def test_every_evaluation_is_counted_and_told_before_it_is_made() -> None:
    graph, told = Pairs(), []
    graph.meter = told.append
    assert graph.latencies(ROWS).tolist() == [3.0, 7.0, 4.0, 8.0, 6.0, np.inf, 10.0, np.inf]
    assert graph.latency(Pair.parse("block=4")) == 6.0 and graph.terms(Pair.parse("block=4")) == {"blocks": 4.0, "depths": 2.0}
    graph.action_masks(ROWS[:1])
    assert told == [8, 1, 1] and graph.evaluations == 10

    def refuse(_: int) -> None:
        raise RuntimeError("nothing is left")

    graph.meter = refuse
    with pytest.raises(RuntimeError, match="nothing is left"):
        graph.latency(graph.initial())
    assert graph.evaluations == 10


def test_walks_are_legal_and_their_seed_decides() -> None:
    graph = Pairs()
    ends = [graph.random_schedule(np.random.default_rng(seed), 8 + seed % 2) for seed in (0, 0, *range(1, 40))]
    assert ends[0] == ends[1] and {end.key for end in ends} == {row.tobytes() for row in next(graph.enumerate())}


def test_a_schedule_is_a_value() -> None:
    one = Pair.parse("block=4 depth=3")
    assert str(one) == "block=4 depth=3" and eval(repr(one), {"Pair": Pair}) == one and one.row.tolist() == [2, 1]
    assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one) and len({one, Pair(one.row)}) == 1
    with pytest.raises(AttributeError, match="cannot be changed"):
        one.row = ROWS[0]
    with pytest.raises(ValueError, match="read-only"):
        one.row[0] = 0
    assert Pairs().stack([]).shape == (0, 2) and Pair.next_below("block", np.array([1, 8])).tolist() == [1, 4]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("block=3", "block=3: expected one of 1, 2, 4, 8"), ("blok=1", "no field 'blok'.*did you mean block"),
        ("block=1 block=2", "each name once"), ("block", "such as 'block=1 depth=1'"), ("block=-1", "not a schedule"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_schedule_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Pair.parse(text)


@pytest.mark.parametrize("row", [[0, 2], [4, 0], [-1, 0], [0], [0.0, 0.0]], ids=str)
def test_a_row_that_is_none_is_refused(row: list[float]) -> None:
    with pytest.raises(ValueError, match="expected indices|a row of 2"):
        Pair(np.array(row))
