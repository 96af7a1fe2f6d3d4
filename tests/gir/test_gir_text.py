"""Schedules of fused operators as text and as rows, and what is said of those that there are not."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from agents.optimizer import optimize
from gensor_gym.dataflow.suite import make
from gensor_gym.gir.actions import ACTIONS
from gensor_gym.gir.placement import Level
from gensor_gym.gir.schedule import FIELDS, HEADER, MOST_PLACED, ROW, GirSchedule, make_schedule

EXAMPLE = "expected each name once, such as 'vector=1 tile=1 rows=1 loop=1 streaming=0 place=sram,reg'"


def random_row(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    header = [int(rng.integers(len(field.values))) for field in FIELDS]
    placed = rng.integers(len(Level), size=MOST_PLACED) * (np.arange(MOST_PLACED) < rng.integers(MOST_PLACED + 1))
    return np.array([*header, *placed], np.int32)


def test_any_row_is_text_that_parses_back_and_pickles() -> None:
    texts = set()
    for seed in range(300):
        schedule = GirSchedule(random_row(seed))
        assert GirSchedule.parse(str(schedule)) == schedule == eval(repr(schedule))
        assert GirSchedule.parse(f"  {'   '.join(reversed(str(schedule).split()))}\n") == schedule
        assert pickle.loads(pickle.dumps(schedule)) == schedule == copy.deepcopy(schedule)
        assert hash(schedule) == hash(GirSchedule(schedule.row)) and schedule != schedule.key
        levels = schedule.placement(MOST_PLACED)
        assert make_schedule({field.name: schedule.value(field.name) for field in FIELDS}, levels) == schedule
        texts.add(str(schedule))
    assert len(texts) > 290


def test_what_is_not_named_stands_at_its_first_value() -> None:
    assert GirSchedule.parse("") == GirSchedule(np.zeros(ROW, np.int32)) == make_schedule({})
    schedule = GirSchedule.parse("rows=4 place=dram,reg")
    assert str(schedule) == "vector=1 tile=1 rows=4 loop=1 streaming=0 place=dram,reg" == str(copy.copy(schedule))
    assert (schedule.value("rows"), schedule.placement(3)) == (4, (Level.DRAM, Level.REG, Level.DRAM))


def test_a_schedule_is_a_value() -> None:
    row = np.zeros(ROW, np.int64)
    schedule = GirSchedule(row)
    row[0] = 1
    assert schedule.value("vector") == 1 and schedule.row.dtype == np.int32
    with pytest.raises(ValueError):
        schedule.row[0] = 1
    with pytest.raises(AttributeError, match="a schedule cannot be changed"):
        schedule.row = row  # type: ignore[misc]


@pytest.mark.parametrize("text, words", [
    ("vector", f"not a schedule: 'vector'; {EXAMPLE}"),
    ("vector=5", "vector=5: expected one of 1, 4, 8, 16"),
    ("vecto=4", "no field 'vecto'; fields are vector, tile, rows, loop, streaming; did you mean vector?"),
    ("=4", "no field ''; fields are vector, tile, rows, loop, streaming"),
    ("rows=4 rows=4", f"not a schedule: 'rows=4 rows=4'; {EXAMPLE}"),
    ("vector=-4", f"not a schedule: 'vector=-4'; {EXAMPLE}"),
    ("vector=4.0", f"not a schedule: 'vector=4.0'; {EXAMPLE}"),
    ("vector=\u0664", f"not a schedule: 'vector=\u0664'; {EXAMPLE}"),
    ("vector=" + "9" * 5000, f"not a schedule: 'vector={'9' * 193}..'; {EXAMPLE}"),
    ("place=sram,", "level '': expected one of dram, recompute, sram, reg, online"),
    ("place=l1", f"not a schedule: 'place=l1'; {EXAMPLE}"),
    ("place=cache", "level 'cache': expected one of dram, recompute, sram, reg, online"),
    ("place=SRAM", f"not a schedule: 'place=SRAM'; {EXAMPLE}"),
    ("place=" + ",".join(["reg"] * 17), "17 levels, expected at most 16"),
    ("vector=4; import os", f"not a schedule: 'vector=4; import os'; {EXAMPLE}"),
    (None, f"not a schedule: 'None'; {EXAMPLE}"),
    (4, f"not a schedule: '4'; {EXAMPLE}"),
    (b"vector=4", f"not a schedule: \"b'vector=4'\"; {EXAMPLE}"),
])  # fmt: skip
def test_other_texts_are_refused(text: Any, words: str) -> None:
    with pytest.raises(ValueError) as error:
        GirSchedule.parse(text)
    assert str(error.value) == words


@pytest.mark.parametrize("row", [
    np.zeros(3, np.int32), np.full(ROW, -1), np.full(ROW, 7), np.full(ROW, 0.5), np.full(ROW, 1 << 40), np.zeros(ROW, bool),
    ["vector"] * ROW, None, np.zeros((1, ROW), np.int32),
], ids=str)  # fmt: skip
def test_other_rows_are_refused(row: Any) -> None:
    with pytest.raises(ValueError, match=r"a schedule is a row of 21 int32 values, got|expected indices from 0 to below \[4, 4"):
        GirSchedule(row)


@pytest.mark.parametrize("fields, levels, words", [
    ({"vector": 8.0}, (), "vector=8.0: expected one of 1, 4, 8, 16"),
    ({"vector": True}, (), "vector=True: expected one of 1, 4, 8, 16"),
    ({}, (3,), "level 3: expected one of dram, recompute, sram, reg, online"),
])  # fmt: skip
def test_other_values_are_refused(fields: Any, levels: Any, words: str) -> None:
    with pytest.raises(ValueError) as error:
        make_schedule(fields, levels)
    assert str(error.value) == words


def test_actions_have_words_of_their_own() -> None:
    words = [str(action) for action in ACTIONS]
    assert len(set(words)) == len(ACTIONS) == 1 + 2 * HEADER + len(Level) * MOST_PLACED
    assert {"stop", "raise rows", "lower streaming", "place 1 at sram"} <= set(words)


@pytest.mark.parametrize("text, words", [
    ("sofmax(m=4, n=4)", "did you mean softmax"),
    ("layernrom(m=4, n=4)", "did you mean layernorm"),
    ("softmax(m=4)", "softmax: missing a required argument: 'n'; expected softmax(m: int, n: int)"),
    ("softmax(m=4, n=4, k=3)", "softmax: got an unexpected keyword argument 'k'; expected softmax(m: int, n: int)"),
    ("rmsnorm(4, 4, 4, 4)", "rmsnorm: too many positional arguments; expected rmsnorm(m: int, n: int, eps: float = 1e-06)"),
    ("softmax(m=-4, n=4)", "softmax: m=-4, expected a whole number of 1 to 17179869184"),
    ("layernorm(m=4, n=0)", "layernorm: n=0, expected a whole number of 1 to 17179869184"),
    ("softmax(m=4.5, n=4)", "softmax: m=4.5, expected a whole number of 1 to 17179869184"),
    ("softmax(m=True, n=4)", "softmax: m=True, expected a whole number of 1 to 17179869184"),
    ("softmax(m='4', n=4)", "softmax: m='4', expected a whole number of 1 to 17179869184"),
    ("layernorm(m=4, n=4, eps='x')", "layernorm: eps='x', expected a finite number"),
    ("layernorm(m=4, n=4, eps=1e999)", "layernorm: eps=inf, expected a finite number"),
    ("rope(t=2, h=2, d=5)", "rope: d=5, expected an even number"),
    ("softmax(m=4, n=4)+relu", "'softmax(m=4, n=4)+relu': expected no epilogue"),
    ("softmax(m=1000000, n=1000000)", "softmax: x has shape [1000000, 1000000], expected at most 8 axes"),
    ("def f(x: float32[4, 4]):\n    y = exp(z)\n    return y\n", "a name that was made before in place of 'z'"),
    ("def f(x: float32[4, 4]):\n    y = pad(x, axis=0, before=1, after=1)\n    return y\n", "needs a kernel of its own"),
])  # fmt: skip
def test_optimize_says_what_there_is(text: str, words: str) -> None:
    with pytest.raises(ValueError) as error:
        optimize(text, backend="analytic", trials=1)
    assert words in str(error.value)


@pytest.mark.parametrize("options, words", [
    ({"strategy": "ansor"}, "strategy 'ansor' does not search fused operators; these do: ["),
    ({"strategy": "exhaustve"}, "no strategy 'exhaustve'; strategies are ["),
    ({"strategy": "exhaustive", "kep": 4},
     "strategy 'exhaustive' has no hyperparameters ['kep']; it has ['space', 'keep', 'near']"),
    ({"space": "gensor"}, "space 'gensor' of softmax(m=4, n=4): expected one of gir, monotone"),
    ({"hardware": "mi300x"}, "softmax(m=4, n=4) on mi300x: fused operators have code for CPUs and GPUs of 32 lanes a warp"),
    ({"hardware": "pentium"}, "pentium"),
    ({"trials": 0}, "0"),
])  # fmt: skip
def test_optimize_says_what_searches_and_where(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as error:
        optimize("softmax(m=4, n=4)", **{"backend": "analytic", "trials": 1, **options})
    assert words in str(error.value)


@pytest.mark.parametrize("strategy", ["exhaustive", "random_walk", "local_search"])
def test_what_searches_fused_operators_finds_a_schedule(strategy: str) -> None:
    found = optimize(make("layernorm", m=5, n=33), "cascade_lake", strategy, backend="analytic", trials=3)
    assert isinstance(found.schedule, GirSchedule) and 0 < found.seconds < 1 and len(found.trace) >= 3
