"""What generated C does beside its instructions: blocks turned in registers, what is written once, lines fetched ahead, exp."""

from __future__ import annotations

import dataclasses
import itertools
import re

import numpy as np
import pytest

from gensor_gym import hardware
from gensor_gym.codegen.c.micro.turn import COUNTS
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.suite import make
from gensor_gym.dataflow.text import parse
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.lowering import lower
from gensor_gym.gir.nest import Access, row_nest
from gensor_gym.gir.parts import nest_on, with_rows_turned
from gensor_gym.gir.schedule import make_schedule
from gensor_gym.measure.answers.fused import FusedDraw
from gensor_gym.networks.loops import rows_of
from gensor_gym.networks.steps import Step
from tests.support import gir_cases
from tests.support.c_cases import ARCHES, needs
from tests.support.gir_cases import faults_of, kernel_at, machine, planted
from tests.support.thorough import thorough_but

ACROSS = """def across(x: float32[{n}, {m}]):
    top = reduce_max(x, axes=[0])
    e = exp(x - top)
    total = reduce_sum(e, axes=[0])
    y = e / total
    return y
"""
"""A softmax of columns: loads of a pass before reductions are turned, tails are left out of sums."""


def turned(columns: int, rows: int, vector: int, step: int, tile: int = 1) -> Kernel:
    """A transposition of `rows` neighbours."""
    schedule = f"vector={vector} tile={tile} rows={step} loop=1 streaming=0"
    return kernel_at(make("transpose_last", a=3, b=columns, c=rows), schedule)


@pytest.mark.parametrize("columns", thorough_but([16, 33, 39], 39))
def test_blocks_of_all_sizes_and_tails(columns: int) -> None:
    sizes = itertools.product((columns,), (2, 3, 4, 8, 12, 16), (4, 8, 16), (2, 4, 8))
    kernels = [turned(*size) for size in sizes if 3 * size[1] >= size[3]]
    assert faults_of(kernels) == []
    for kernel in kernels:
        found = re.findall(r"c=(\d+).*vector=(\d+).*rows=(\d+)", kernel.source)[0]
        rows, vector, step = (int(word) for word in found)
        block = min(int(np.gcd(rows, step)), vector)
        words = set(re.findall(r"\b(turn_\w+|apart_\w+|gather_\d+)\(t_", kernel.source))
        kind = "apart" if block == rows else "turn"
        expected = f"{kind}_{COUNTS[block]}_{vector}" if block > 1 else f"gather_{vector}"
        assert expected in words and words <= {expected, f"gather_{vector}"}, f"{columns} x {rows}: {words}"


HALF = """def half(x: {dtype}[3, {columns}, {rows}]):
    y = transpose(x, order=[0, 2, 1])
    return y
"""


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_blocks_of_16_bits_and_tails(dtype: str) -> None:
    """Blocks of four and eight rows in whole vectors; tails, and other blocks, are gathered."""
    for rows, step, vector, block in ((8, 8, 16, 8), (12, 4, 16, 4), (16, 8, 8, 8), (8, 4, 8, 4), (6, 2, 16, 1), (8, 8, 4, 1)):
        kernels = []
        for columns in (32, 39):
            text = HALF.format(dtype=dtype, columns=columns, rows=rows)
            kernels.append(kernel_at(parse(text), f"vector={vector} tile=1 rows={step} loop=1 streaming=0"))
            words = {*re.findall(r"\b(turn_[a-z]+|gather)_(?:bfloat|half)_\d+\(t_", kernels[-1].source)}
            assert words == ({f"turn_{COUNTS[block]}"} if block > 1 else {"gather"})
        assert faults_of(kernels) == []
    faulty = kernel_at(parse(HALF.format(dtype=dtype, columns=32, rows=8)), "vector=16 tile=1 rows=8 loop=1")
    assert len(faults_of([planted(faulty, r"_turned\[3\]", "_turned[2]")])) == 1


@pytest.mark.thorough
def test_turned_loads_feed_reductions_and_several_tiles() -> None:
    kernels = [
        kernel_at(parse(ACROSS.format(n=n, m=m)), f"vector={vector} tile={tile} rows={rows} place={place}")
        for n, m in ((37, 8), (100, 12), (64, 4))
        for vector, tile, rows in ((16, 2, 4), (8, 1, 4), (4, 4, 2), (16, 1, 4))
        for place in ("dram,sram", "dram,recompute", "sram,dram")
    ]
    assert faults_of(kernels) == [] and all("turn_" in kernel.source or "apart_" in kernel.source for kernel in kernels)


FAR = """def far(x: float32[3, 5, {columns}, {rows}], z: float32[{rows}, 1, 1]):
    t = transpose(x, order=[0, 3, 1, 2])
    y = t + z
    return y
"""
"""Channels first of an image whose lines are no whole vectors."""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_of_an_image_are_taken_in_the_order_in_which_loads_are_turned(dtype: str) -> None:
    """Channels are the last rows, so a block of channels is loaded together; in the order of the output none would be."""
    far = FAR.replace("float32", dtype)
    graph = parse(far.format(columns=131, rows=8))
    whole, nest = row_nest(graph), GirGraph(graph, machine()).nest
    loads = [cell.made for cell in nest.cells if isinstance(cell.made, Access)]
    assert (whole.row_extents, nest.row_extents) == ((3, 8, 5), (3, 5, 8)) and (5240, 1048, 1) in [one.rows for one in loads]
    assert with_rows_turned(nest) is nest and nest_on(graph, hardware.get("h100")) == whole
    kernels = [kernel_at(parse(far.format(columns=131, rows=rows)), "vector=16 tile=1 rows=8 loop=4") for rows in (8, 12)]
    assert faults_of(kernels) == [] and all("turn" in one.source or "apart" in one.source for one in kernels)
    assert not any(one.task_rows for one in kernels) and kernel_at(make("gelu", m=9, n=177), "rows=2 loop=4").task_rows == 8
    with pytest.raises(ValueError, match="in another order than they are stored"):
        rows_of(Step(graph, ("x", "z"), ("y",)))


@pytest.mark.parametrize("text", [
    "def f(x: float32[4, 8, 9, 16], z: float32[16, 8, 1]):\n    t = transpose(z, order=[1, 2, 0])\n    y = x + t\n    return y\n",
    FAR.replace("float32", "int64").format(columns=131, rows=8),
], ids=["a_small_load", "of_whole_numbers"])  # fmt: skip
def test_rows_keep_their_order_without_a_large_load_that_is_turned(text: str) -> None:
    nest = row_nest(parse(text))
    assert with_rows_turned(nest) is nest


@pytest.mark.parametrize("columns, rows, pattern, instead", [
    (33, 8, r"_turned\[3\]", "_turned[2]"),  # another row of a block
    (33, 16, r", 16, 16, (v_x_0_0_turned)", r", 15, 16, \1"),  # another pitch
    (39, 4, r"(apart_four_16\(.*), 7, ", r"\1, 6, "),  # a tail that lacks its last column
])  # fmt: skip
def test_faults_of_blocks_are_caught(columns: int, rows: int, pattern: str, instead: str) -> None:
    assert len(faults_of([planted(turned(columns, rows, 16, 8), pattern, instead)])) == 1


ZIPPED = """def zipped(x: float32[3, 2, 2, 5, {width}]):
    y = transpose(x, order=[0, 3, 1, 4, 2])
    return y
"""
"""Pixels of a transposed convolution with stride 2."""


def test_two_columns_are_interleaved_in_vectors() -> None:
    sizes = [(width, rows, loop) for width in (8, 12, 24, 7) for rows in (1, 2, 4, 8) for loop in (1, 4)]
    kernels = [kernel_at(parse(ZIPPED.format(width=w)), f"vector=1 tile=2 rows={r} loop={n}") for w, r, n in sizes]
    assert faults_of(kernels) == []
    found = ["odd = load" in kernel.source for kernel in kernels]
    assert found == [rows > 2 and width % rows == 0 for width, rows, _ in sizes]
    assert len(faults_of([planted(kernels[6], r"8, 1, 9", "9, 1, 8")])) == 1


def test_what_is_repeated_along_rows_is_written_once() -> None:
    graph = make("kv_concat", h=3, t=5, d=16)
    kernel = kernel_at(graph, "vector=16 tile=1 rows=4 loop=1")
    assert faults_of([kernel]) == [] and kernel.source.count("if (digit1_0 == 0) {") == 2  # in steps of four rows, and of one
    wrong = dataclasses.replace(kernel, source=kernel.source.replace("if (digit1_0 == 0)", "if (digit1_0 == 9)"))
    assert len(faults_of([wrong])) == 1
    nest = GirGraph(graph, machine()).nest
    once = [one for one in lower(nest, ()).kernels[0].instructions() if one.once]
    assert [(one.kind, one.cell, one.once) for one in once] == [("move", "now", (1,)), ("move", "now", (1,))]
    elements = 2 * 3 * 16 * (5 + 1)
    assert GirGraph(graph, machine()).moved_bytes(make_schedule({}).row[None])[0] == 4 * elements


def test_a_number_of_fewer_rows_is_written_once() -> None:
    text = """def f(x: float32[3, 1, 7], z: float32[3, 5, 7]):
    a = reduce_max(x, axes=[2])
    y = z * a
    return y, a
"""
    kernel = kernel_at(parse(text), "vector=4 tile=1 rows=2 loop=1")
    assert faults_of([kernel]) == [] and re.search(r"if \(digit1_1 == 0\) \*t_a_\d_at1 = ", kernel.source)


def test_passes_fetch_what_comes_next() -> None:
    graph = make("softmax", m=9, n=77)
    kernel = kernel_at(graph, "vector=16 tile=2 rows=2 loop=1 place=dram,sram")
    ahead = re.findall(r"__builtin_prefetch\((.*)\);", kernel.source)
    assert [text for text in ahead if text.endswith(", 1")][:2] == ["t_y_1_at0 + c, 1", "t_y_1_at1 + c, 1"]
    assert f"(const void *)((uintptr_t)(t_x_0_at1 + c + 16) + {4 * 2 * 77})" in ahead
    past = kernel_at(graph, "vector=16 tile=2 rows=2 loop=1 streaming=1 place=dram,sram").source
    assert ", 1);" not in "".join(re.findall(r"__builtin_prefetch\(.*\);", past))
    assert "prefetch" not in kernel_at(make("gelu", m=9, n=177), "vector=16 tile=2 rows=2 loop=1").source
    assert faults_of([kernel]) == []


EXP = "def f(x: float32[1, {n}], z: float32[1, {n}]):\n    y = minimum(exp(x), z)\n    return y\n"


@pytest.mark.parametrize("arch", ARCHES)
def test_exp_is_within_its_bound_everywhere(arch: str) -> None:
    needs(arch)
    special = (-np.inf, np.inf, np.nan, 0.0, -0.0, 88.72283, 88.72284, -87.33654, -103.9, -104.1, 1e30, -1e30)
    x = np.concatenate([np.array(special, np.float32), np.linspace(-110, 95, 20001, dtype=np.float32)])[None]
    inputs = (x, np.full_like(x, np.inf))
    graph = parse(EXP.format(n=x.size))
    kernels = [kernel_at(graph, f"vector={vector} tile=1 rows=1 loop=1") for vector in (16, 8, 4, 1)]
    draw = FusedDraw(inputs, evaluate(graph, inputs))
    for kernel, entry in zip(kernels, gir_cases.entries_of(kernels, arch), strict=True):
        (output,) = gir_cases.called(kernel, entry, inputs)
        assert draw.fault(output) == "" and np.isposinf(output[0, 1]) and np.isnan(output[0, 2]) and output[0, 0] == 0.0
        assert not np.any((output > 0) & (output < np.finfo(np.float32).tiny))  # denormal numbers are slow


def test_a_transposition_costs_less_turned_than_gathered() -> None:
    graph = GirGraph(make("transpose_last", a=49, b=232, c=8), machine())
    seconds = [graph.latency(graph.parse(f"vector=16 tile=1 rows={rows} loop=1")) for rows in (1, 8)]
    assert seconds[1] < 0.6 * seconds[0]
    odd = GirGraph(make("transpose_last", a=49, b=232, c=7), machine())
    assert odd.latency(odd.parse("vector=16 tile=1 rows=8 loop=1")) > 1.5 * seconds[1]
