"""Few long rows in parts: which are cut, that programs of them are right, and that faults in joining are caught."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import hardware
from gensor_gym.codegen.gir.generate import GirProgram, generate_gir
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.suite import make
from gensor_gym.dataflow.text import parse
from gensor_gym.gir import parts
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.lowering import lower
from gensor_gym.gir.model import GirModel
from gensor_gym.gir.nest import Access, RowNest, row_nest
from gensor_gym.gir.parts import in_parts, nest_on, parts_of, with_long_rows
from gensor_gym.gir.placement import Level
from gensor_gym.gir.schedule import HEADER, GirSchedule
from gensor_gym.measure.answers.fused import FusedDraw, fused_draws
from gensor_gym.networks.loops import rows_of
from gensor_gym.networks.steps import Step
from tests.gir.test_gir_igraph import check, placements
from tests.gir.test_gir_online import TWO_SUMS, hard_rows
from tests.support import gir_cases, oracle_gir
from tests.support.gir_cases import machine, random_rows, random_schedule
from tests.support.gir_interpreter import interpreted

SOFTMAX = make("softmax", 1, 495)
NORM = make("norm", 15, 33)
NUMBERS = """def numbers(x: float32[2, 660], z: float32[2, 1], w: float32[660]):
    shift = exp(z)
    s = x * shift + w
    total = reduce_sum(s, axes=[1])
    top = reduce_max(s, axes=[1])
    scale = total - top * z
    y = s * scale
    return y, scale, shift
"""
"""A number of the row that is loaded, one that is made before the first pass, and outputs of both kinds."""
GRAPHS = [
    SOFTMAX, NORM, make("layernorm", 1, 495), make("masked_softmax", 1, 660), make("add_layernorm", 1, 528),
    make("bias_gelu", 1, 495), make("reduce_mean", 1, 1, 600), parse(NUMBERS), parse(TWO_SUMS.format(n=495)),
    make("softmax", 1, 499), parse(NUMBERS.replace("660", "661")), make("add_layernorm", 3, 401),
]  # fmt: skip


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are long for a test."""
    monkeypatch.setattr(parts, "LEAST_COLUMNS", 130)
    monkeypatch.setattr(parts, "LEAST_PASSES", 260)


def cores(lanes: int = 16) -> hardware.Hardware:
    """A machine with more cores than any graph here has rows."""
    return dataclasses.replace(machine(lanes), units=4)


def graph_of(operator: Dataflow, lanes: int = 16) -> GirGraph:
    graph = GirGraph(operator, cores(lanes))
    assert graph.nest.parts > 1
    return graph


def places(nest: RowNest, access: Access) -> np.ndarray:
    """Where the elements of all rows lie, in the order of the loops, int64 [elements]."""
    starts = [access.offset + int(np.dot(access.rows, row)) for row in np.ndindex(*nest.row_extents)]
    ends = [nest.columns_at(row[-1] if row else 0) for row in np.ndindex(*nest.row_extents)]
    return np.concatenate([start + access.column * np.arange(end) for start, end in zip(starts, ends, strict=True)])


def accesses(nest: RowNest) -> list[Access]:
    return [cell.made for cell in nest.cells if isinstance(cell.made, Access)] + [to for _, to in nest.stores]


@pytest.mark.parametrize("operator", GRAPHS, ids=str)
def test_parts_have_the_elements_of_the_rows_in_their_order(operator: Dataflow) -> None:
    whole, cut = row_nest(operator), graph_of(operator).nest
    assert cut.rows == whole.rows * cut.parts and cut.elements == whole.elements
    assert bool(cut.last) == (whole.columns % cut.parts > 0)
    assert cut.columns * (cut.parts - 1) + (cut.last or cut.columns) == whole.columns
    for one, other in zip(accesses(whole), accesses(cut), strict=True):
        assert np.array_equal(places(whole, one), places(cut, other))


def test_few_long_rows_are_cut_on_cpus_alone() -> None:
    h100 = hardware.get("h100")
    for rows, units, expected in ((1, 1, 3), (1, 8, 3), (2, 2, 1), (3, 2, 1), (3, 4, 3), (4, 4, 1)):
        assert in_parts(row_nest(make("softmax", rows, 495)), units).parts == expected
    assert nest_on(SOFTMAX, h100) == row_nest(SOFTMAX) and nest_on(SOFTMAX, cores()).parts == 3
    assert in_parts(row_nest(make("softmax", 1, 259)), 4).parts == 1  # its passes would be launches
    assert in_parts(row_nest(make("norm", 1, 260)), 4).parts == 2
    cut = in_parts(row_nest(SOFTMAX), 4)
    assert in_parts(cut, 4) is cut
    turned = "def turned(x: float32[495, 3]):\n    y = reduce_sum(x, axes=[0])\n    return y\n"
    assert in_parts(row_nest(parse(turned)), 4).parts == 1


SHORT_ROWS = {
    "def f(x: float32[2, 5, 7, 7], y: float32[2, 5, 7, 7]):\n    z = x + y\n    return z\n": ((1,), 490),
    "def f(x: float32[4, 9, 8, 8]):\n    z = exp(x)\n    return z\n": ((18,), 128),
    "def f(x: float32[1, 6, 14, 14], s: float32[1, 6, 1, 1]):\n    z = x * s\n    return z\n": ((6,), 196),
    "def f(x: float32[6, 14], s: float32[14]):\n    z = x * s\n    return z\n": ((6,), 14),
    "def f(x: float32[14, 6]):\n    z = transpose(x, order=[1, 0])\n    w = exp(z)\n    return w\n": ((6,), 14),
    "def f(x: float32[30, 20]):\n    z = reduce_sum(x, axes=[1])\n    return z\n": ((30,), 20),
    "def f(x: float32[3, 200]):\n    z = exp(x)\n    return z\n": ((3,), 200),
}
"""Text of a graph -> (extents of rows, columns) on a CPU."""


@pytest.mark.parametrize("text", SHORT_ROWS, ids=range(len(SHORT_ROWS)))
def test_short_rows_are_joined_where_all_tensors_have_them_contiguously(text: str) -> None:
    whole = row_nest(parse(text))
    long = with_long_rows(whole)
    assert (long.row_extents, long.columns) == SHORT_ROWS[text]
    assert long.elements == whole.elements and long.rows * long.together == whole.rows
    for one, other in zip(accesses(whole), accesses(long), strict=True):
        assert np.array_equal(places(whole, one).ravel(), places(long, other).ravel())
    step = Step(parse(text), ("x",), ("z",))
    if long.together > 1:
        with pytest.raises(ValueError, match="columns are computed together, expected longer rows in a loop"):
            rows_of(step)


def test_parts_are_whole_lines_where_they_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    counts = [parts_of(columns)[0] for columns in (8192, 16384, 65536, 1 << 24, 1_000_000, 16390)]
    assert counts == [1, 2, 8, 64, 50, 2]
    assert parts_of(50257) == (6, 8384)  # the last of 8337
    assert parts_of(3 * 99_991) == (36, 8336)  # and not three


@pytest.mark.parametrize("operator", GRAPHS, ids=str)
def test_the_instruction_graph_says_the_same(operator: Dataflow) -> None:
    nest, draws, sound = graph_of(operator).nest, fused_draws(operator, 0), 0
    for place, placement in enumerate(placements(nest)):
        lowered = lower(nest, placement)
        kept = {Level.SRAM, Level.REG}.intersection(placement)
        assert bool(lowered.fault) == bool(kept) or nest.parts * nest.passes == 1
        if lowered.fault:
            continue
        sound += 1
        if Level.ONLINE not in placement:
            check(lowered, draws[place % 2])
            continue
        outputs, _ = interpreted(lowered, draws[place % 2].inputs)
        assert draws[place % 2].fault(outputs[0] if len(outputs) == 1 else outputs) == ""
    assert sound == len(list(itertools.product(*(set(p) - {Level.SRAM, Level.REG} for p in zip(*placements(nest), strict=True)))))


@pytest.mark.parametrize("operator", GRAPHS, ids=str)
def test_rules_agree_with_the_oracle(operator: Dataflow) -> None:
    graph = graph_of(operator, 8)
    rows = random_rows(graph, np.random.default_rng(0), 120)
    rows[60:, :HEADER] = np.minimum(rows[60:, :HEADER], 1)
    expected = [oracle_gir.is_legal(graph.nest, graph.hardware, GirSchedule(row)) for row in rows]
    assert graph.fits(rows).tolist() == expected and 0 < sum(expected) < len(rows)


def kernels(operator: Dataflow, count: int, seed: int = 0, widths: Sequence[int] = (16, 8, 4)) -> list[Kernel]:
    """Random legal programs for some widths of vectors, online ones among them where there are such."""
    found, rng = [], np.random.default_rng(seed)
    for lanes in widths:
        graph = graph_of(operator, lanes)
        chosen = [random_schedule(graph, rng) for _ in range(count)]
        rows = random_rows(graph, rng, 400)
        online = rows[graph.fits(rows) & (rows[:, HEADER:] == Level.ONLINE).any(axis=1)]
        chosen += [GirSchedule(row) for row in online[:count]]
        found += [generate_gir(GirProgram(graph.nest, one, graph.hardware)) for one in chosen]
    return found


def test_programs_are_right_between_guard_pages() -> None:
    some = [kernels(operator, 1, place, [(16, 8, 4)[place % 3]]) for place, operator in enumerate(GRAPHS[1::2])]
    assert gir_cases.faults_of(list(itertools.chain(*some))) == []


@pytest.mark.thorough
@pytest.mark.parametrize("operator", GRAPHS, ids=str)
def test_many_programs_are_right_between_guard_pages(operator: Dataflow) -> None:
    some = kernels(operator, 30, seed=1)
    assert [fault for start in range(0, len(some), 10) for fault in gir_cases.faults_of(some[start : start + 10])] == []


@pytest.mark.thorough
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    assert gir_cases.sanitized(tmp_path, [kernel for operator in GRAPHS for kernel in kernels(operator, 1, seed=2)]) == ""


def test_hard_rows() -> None:
    """What is infinite or no number, in one part or in all."""
    some = kernels(SOFTMAX, 1, widths=[8])
    entries = gir_cases.entries_of(some)
    for row in hard_rows(495):
        inputs = (row[None],)
        draw = FusedDraw(inputs, evaluate(SOFTMAX, inputs))
        for kernel, entry in zip(some, entries, strict=True):
            (output,) = gir_cases.called(kernel, entry, inputs)
            assert not draw.fault(output), kernel.source.partition(" */")[0]


FAULTS = {
    ("recompute", SOFTMAX, "vector=16 tile=2 rows=1 loop=1 streaming=0 place=dram,recompute"): [
        (r"part < 3; part\+\+\) v_total_0", "part < 2; part++) v_total_0"),  # the last part left out
        (r"v_total_0_of\[part\]", "v_total_0_of[0]"),  # the first part for all
        (r"(team\.parallel\(&team, kernel0, &call, \d+\);)\s+(join0\(&call\);)", r"\2 \1"),  # joined before it is there
        (r"partials\[row \+ 0\]", "partials[0]"),  # parts in each other's place
    ],
    ("online", SOFTMAX, "vector=16 tile=2 rows=1 loop=1 streaming=0 place=dram,online"): [
        (r" \* exp_1\(base - v_top_0\)", ""),  # a part's sum is not scaled to the row's maximum
    ],
    ("a shorter last part", make("softmax", 1, 499), "vector=16 tile=2 rows=2 loop=4 streaming=0 place=dram,recompute"): [
        (r"kernel(\d)_last\(call, scratch, row\+\+\)", "row++"),  # the last part left out
        (r"row \+ 2 - row % 3", "row + 1 - row % 3"),  # a part before the last as short as it
    ],
}


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case[0])
def test_faults_are_caught(case: tuple[str, Dataflow, str]) -> None:
    _, operator, text = case
    graph = graph_of(operator)
    assert graph.is_legal(schedule := graph.parse(text))
    right = generate_gir(GirProgram(graph.nest, schedule, graph.hardware))
    kernels, draws = [right, *(gir_cases.planted(right, *fault) for fault in FAULTS[case])], fused_draws(operator, 0)[:2]
    found = [gir_cases.fault_of(*pair, draws) for pair in zip(kernels, gir_cases.entries_of(kernels), strict=True)]
    assert found[0] == "" and [fault for fault, one in zip(FAULTS[case], found[1:], strict=True) if not one] == []


@pytest.mark.parametrize("name, sizes", [("norm", (1024, 1024)), ("softmax", (1, 1 << 20)), ("layernorm", (1, 1 << 18))])
def test_two_cores_are_quicker_than_one_by_the_model(monkeypatch: pytest.MonkeyPatch, name: str, sizes: tuple[int, int]) -> None:
    """As measured (two cores of an Intel Xeon, quiet): 139 us whole and 27 in parts, 546 and 259, 214 and 42."""
    monkeypatch.undo()
    operator = make(name, *sizes)
    graph = GirGraph(operator, machine())
    whole = GirModel(row_nest(operator), graph.hardware)
    rows = np.concatenate(list(graph.enumerate()))
    rows[:, GirSchedule.places["rows"]] = rows[:, GirSchedule.places["loop"]] = 0
    assert graph.optimum()[1] < 0.7 * whole.terms(np.unique(rows, axis=0))[:, 0].min()
