"""Parts of the graph: knobs, coordinates, and tables of a task."""

from __future__ import annotations

import re
import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType

import numba
import numpy as np
import pytest

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost import model
from gensor_gym.cost.column_descent import descend
from gensor_gym.graph import knobs
from gensor_gym.graph.actions import ACTIONS, space_actions
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.compiling import parts
from gensor_gym.graph.compiling.parts import Part, is_tried
from gensor_gym.graph.coordinates import Coordinates, opened
from gensor_gym.graph.enumeration import count_schedules
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS, Knob
from gensor_gym.graph.knobs.knob import EVERY, MATRIX
from gensor_gym.graph.rules import fits
from gensor_gym.graph.starts import starts
from gensor_gym.graph.tables import layout
from gensor_gym.graph.tables.geometry import power_value
from gensor_gym.graph.tables.layout import KNOB, LEVEL
from tests.support.graph_walks import graph_of

if numba.config.DISABLE_JIT:
    pytest.skip("nothing is compiled", allow_module_level=True)


@lean
def least(values):  # noqa: ANN001, ANN201
    found = values[0]
    for value in values:
        found = min(found, value)
    return found


@lean
def within(values, bound=4):  # noqa: ANN001, ANN201
    return least(values) < bound and max(values[0], values[1], 2) > 2


@lean
def above(values):  # noqa: ANN001, ANN201
    return max(values[0], values[1], 2) + least(values)


@numba.njit
def both(values):  # noqa: ANN001, ANN201
    """Numba's own decorator and no cache: the parts are always compiled."""
    return within(values), above(values), within(values, 1)


def test_a_part_has_no_machine_code_and_answers_inside_others() -> None:
    """`within` and `above` share what they call, of this module and of Numba's: each is there once, after all that call it."""
    values = np.array([5, 2, 9])
    assert both(values) == (True, 7, False)
    for part in (within, above, least):
        assert isinstance(part, Part) and len(part.overloads) > 0
        assert not any(callable(found.entry_point) for found in part.overloads.values())
        assert "whole" not in part.__dict__, "nor was it made for Python"


def test_python_may_call_a_part() -> None:
    values = np.array([5.0, 2.0])
    assert above(values) == 7.0 and within(values) and not within(values, bound=1)
    asked = []
    above._compile_for_args = lambda *arguments: asked.append(arguments)
    assert above(values + 1) == 9.0 and not asked, "the second call of the same types finds the function by itself"


def test_python_may_call_a_part_with_several_types() -> None:
    """What was given for one type is not given again for the next: every call would be taken for one of types not met."""
    several = [np.array([5, 2], dtype) for dtype in (np.int64, np.float64, np.int32)]
    assert [least(values) for values in several] == [2, 2, 2]
    asked = []
    least._compile_for_args = lambda *arguments: asked.append(arguments)
    assert [least(values) for values in several] == [2, 2, 2] and not asked


@lean
def of_a_gpu(row, ints, floats, terms):  # noqa: ANN001, ANN201
    return 1.0


@lean
def of_a_cpu(row, ints, floats, terms, tiles, space):  # noqa: ANN001, ANN201
    return 2.0


@pytest.mark.parametrize(("machine", "own", "other"), [("h200", of_a_gpu, of_a_cpu), ("cascade_lake", of_a_cpu, of_a_gpu)])
def test_only_the_machines_own_model_is_compiled(machine: str, own: Part, other: Part) -> None:
    """The text of `model.latency` over two models that take no time to compile."""
    scope = {"latency_gpu": of_a_gpu, "latency_cpu": of_a_cpu}
    latency = numba.njit(FunctionType(model.latency.py_func.__code__, scope))
    ints, before = graph_of("gemm(m=4, n=16, k=4)", machine, "compact").tables.ints, len(other.overloads)
    nothing = np.zeros(1)
    assert latency(nothing, ints, nothing, nothing, nothing, model.room(ints)) == (1.0 if own is of_a_gpu else 2.0)
    assert own.overloads and len(other.overloads) == before


def test_another_release_of_numba_compiles_as_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.numba, "__version__", "0.99.1")

    @lean
    def doubled(value):  # noqa: ANN001, ANN202
        return 2 * value

    @numba.njit
    def outer(value):  # noqa: ANN001, ANN202
        return doubled(value) + 1

    assert not isinstance(doubled, Part) and outer(3) == 7 and doubled(4) == 8
    assert is_tried("0.68.1") and not is_tried("0.6") and not is_tried("0.68rc1")


PAGE = Path(__file__).parents[2] / "docs" / "design.md"
KINDS = {"gpu": "GPU", "cpu": "CPU", "both": "both"}


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_a_knob_is_whole(knob: Knob) -> None:
    """Values climb from the default on, it says what they mean and cost, and a row has its place under its name."""
    assert list(knob.values) == sorted(set(knob.values)) and 2 <= len(knob.values) <= 16
    assert knob.default == knob.values[0] and knob.default in knob.available
    assert set(knob.masked) < set(knob.values) and set(knob.available) == set(knob.values) - set(knob.masked)
    assert knob.doc and knob.cost and "|" not in knob.doc
    assert getattr(layout, knob.name.upper()) == knob.place == layout.KNOB + KNOB_INDEX[knob.name]
    assert 0 <= knob.raising <= EVERY and 0 <= knob.lowering <= EVERY
    assert knob.cores and set(knob.cores) <= {0, 1, 2} and (knob.kind != "cpu" or knob.cores == (0, 1, 2))
    assert knob.raising & MATRIX or knob.cores == (0, 1, 2), "raising it may break MATRIX where it goes with some cores alone"


def test_the_documentation_has_the_lines_of_the_knobs(update_golden: bool) -> None:
    """The table of `docs/design.md` is what the knobs say; `--update-golden` writes it."""
    text = PAGE.read_text(encoding="utf-8")
    head = "| knob | hardware | values, those masked in brackets |\n|---|---|---|\n"
    table = head + "".join(f"| `{knob.name}` | {KINDS[knob.kind]} | {knob.doc} |\n" for knob in KNOBS)
    there = text[text.index(head) :].split("\n\n")[0] + "\n"
    if update_golden:
        PAGE.write_text(text.replace(there, table), encoding="utf-8")
        pytest.skip("written")
    assert there == table, "the lines of the knobs changed: run with --update-golden"


@pytest.mark.parametrize("name", ["split_k", "reduce_threads", "vector", "unroll", "raster", "cluster", "thread_split"])
def test_values_that_rules_take_for_powers_of_two_are(name: str) -> None:
    values = KNOBS[KNOB_INDEX[name]].values
    assert values == tuple(power_value(index) for index in range(len(values)))


def test_space_medium_moves_the_knobs_of_operands() -> None:
    moved = {action.knob for action, legal in zip(ACTIONS, space_actions("medium"), strict=True) if legal and action.knob}
    assert moved == {knob.name for knob in KNOBS if knob.of_operands}
    line = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `medium` |"))
    assert moved == set(re.findall(r"`(\w+)`", line)) - {"medium", "compact"}


@pytest.mark.parametrize("core", [0, 1, 2])
def test_programs_have_no_knob_of_other_kinds(core: int) -> None:
    """A program on these cores keeps the default of every knob that does not go with them."""
    graph = graph_of("gemm(m=512, n=512, k=512, dtype='float16')", "h200", "extended")
    rows = starts(graph.tables, graph.initial().row)
    row = next(row for row in rows if row[layout.TENSOR_CORE] == core and fits(row, graph.tables.ints))
    others = [knob for knob in KNOBS if core not in knob.cores]
    assert others
    for knob in others:
        changed = row.copy()
        changed[knob.place] = 1
        assert not fits(changed, graph.tables.ints), knob.name


def test_knobs_must_take_every_place_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder with one owner alone is refused, and the error names the place that it takes."""
    shutil.copy(Path(knobs.__file__).with_name("raster.py"), tmp_path)
    spec = spec_from_file_location("short_of_knobs", knobs.__file__, submodule_search_locations=[str(tmp_path)])
    assert spec is not None and spec.loader is not None
    package = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "short_of_knobs", package)
    with pytest.raises(ValueError, match=rf"places {layout.KNOB} to {layout.ROW - 1}.*'raster': {layout.RASTER}"):
        spec.loader.exec_module(package)


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
