"""Row nests whose vectors run along the rows, such as sums over the pixels of images with channels last."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from gensor_gym.codegen.gir.generate import GirProgram, generate_gir
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.text import parse
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.parts import goes_across, nest_on, rows_of
from gensor_gym.gir.schedule import GirSchedule, make_schedule
from tests.codegen.c.test_codegen_c_pitched import faults
from tests.support.c_cases import machine
from tests.support.gir_cases import faults_of, planted
from tests.support.thorough import thorough_but

MEAN = """def mean(x: float32[{n}, {h}, {w}, {c}]):
    s = reduce_sum(x, axes=[1, 2])
    y = s / 42.0 + 1.0
    return y
"""
GATED = """def gated(x: float32[{n}, {h}, {w}, {c}], b: float32[{c}], p: float32[1, {h}, {w}, 1]):
    z = (x + b) * p
    y = z / (1.0 + exp(-z))
    s = reduce_sum(y, axes=[1, 2])
    t = reduce_max(y, axes=[1, 2])
    u = s * t
    return y, u
"""
"""What is computed is stored, a number for each row and one for each column are read, and two reductions are joined."""
COLUMNS = "def columns(x: float32[{m}, {c}]):\n    t = reduce_max(x, axes=[0])\n    return t\n"
CLIPPED = "y = s / 42.0 + 1.0", "y: int8 = minimum(maximum(round(s / 42.0) + 3.0, -128.0), 127.0)"
GRAPHS = {
    "mean": MEAN.format(n=1, h=6, w=7, c=48), "two images": MEAN.format(n=2, h=3, w=5, c=24),
    "gated": GATED.format(n=2, h=5, w=3, c=40), "columns": COLUMNS.format(m=37, c=64),
    "bfloat16": MEAN.format(n=1, h=6, w=7, c=48).replace("float32", "bfloat16").replace("y =", "y: bfloat16 ="),
    "int8": MEAN.format(n=1, h=6, w=7, c=48).replace("x: float32", "x: int8").replace(*CLIPPED),
    "float16": GATED.format(n=2, h=5, w=3, c=40).replace("float32", "float16").replace("u =", "u: float16 ="),
}  # fmt: skip


def across(graph: Dataflow, count: int, seed: int = 0) -> list[Kernel]:
    """Kernels of random legal schedules whose vectors run along rows."""
    found = list[Kernel]()
    rng, hw = np.random.default_rng(seed), machine()
    made = GirGraph(graph, hw)
    rows = np.concatenate(list(made.enumerate()))
    chosen = rows[rows_of(made.nest, GirSchedule.columns(rows)["vector"]) > 1]
    for row in rng.permutation(chosen)[:count]:
        found.append(generate_gir(GirProgram(made.nest, GirSchedule(row), hw)))
    assert len(found) == min(count, len(chosen)) > 0
    return found


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("count", thorough_but([8, 200], 8))
def test_kernels_are_right_and_neither_turn_nor_gather(name: str, count: int) -> None:
    kernels = across(parse(GRAPHS[name]), count)
    assert faults_of(kernels) == []
    for kernel in kernels:
        assert not re.search(r"\b(turn|apart|gather|scatter|fold)_\w*\(", kernel.source[kernel.source.index("struct call {") :])


def test_rows_that_are_apart_in_memory() -> None:
    text = GATED.format(n=2, h=5, w=3, c=40).replace("x: float32[2, 5, 3, 40]", "x: pitched(float32[2, 5, 3, 40], 56)")
    assert faults(across(parse(text.replace("return y, u", "return pitched(y, 48), u")), 6)) == []


@pytest.mark.parametrize("what", ["a row too far", "a column too few", "a sum that begins at 1"])
def test_planted_faults_are_caught(what: str) -> None:
    (kernel,) = across(parse(GRAPHS["gated"]), 1)
    pattern, instead = {
        "a row too far": (r"(t_x_\d+_at0 = call->t_x)", r"\1 + 1"), "a column too few": (r"c < 15", "c < 14"),
        "a sum that begins at 1": (r"splat_(\d+)\(0\.0f\)", r"splat_\1(1.0f)"),
    }[what]  # fmt: skip
    assert len(faults_of([planted(kernel, pattern, instead)])) == 1


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (MEAN.format(n=1, h=6, w=7, c=48), True),
        (MEAN.format(n=1, h=6, w=7, c=48).replace("float32", "bfloat16"), True),
        ("def first(x: float32[1, 48, 6, 7]):\n    y = reduce_sum(x, axes=[2, 3])\n    return y\n", False),
        ("def turned(x: float32[48, 33]):\n    y = transpose(x, order=[1, 0])\n    return y\n", False),
        (MEAN.format(n=1, h=6, w=7, c=48).replace("float32[1, 6", "int64[1, 6").replace("/ 42.0 + 1.0", "+ 1"), False),
        ("def twice(x: float32[33, 48]):\n    t = reduce_max(x, axes=[0])\n    y = x - t\n    return y\n", False),
    ],
    ids=["channels last", "in 16 bits", "channels first", "a transposition", "other types", "two passes"],
)
def test_which_nests_have_vectors_of_rows(text: str, is_one: bool) -> None:
    assert goes_across(nest_on(parse(text), machine())) == is_one


def test_vectors_fit_in_the_last_axis_of_rows() -> None:
    nest = nest_on(parse(MEAN.format(n=2, h=6, w=7, c=24)), machine())
    assert rows_of(nest, np.array([1, 4, 8, 16])).tolist() == [1, 4, 8, 1]
    graph = GirGraph(parse(MEAN.format(n=2, h=6, w=7, c=24)), machine())
    legal = {
        (vector, tile, rows): graph.is_legal(make_schedule({"vector": vector, "tile": tile, "rows": rows}))
        for vector in (8, 16) for tile in (1, 2) for rows in (1, 4, 8)
    }  # fmt: skip
    assert legal[8, 1, 4] and not legal[8, 2, 4], "more vectors side by side have all rows first"
    assert not legal[8, 1, 8], "64 rows of 48" and legal[16, 2, 4]


def test_the_model_prefers_vectors_of_rows_that_read_whole_pixels() -> None:
    hw = dataclasses.replace(machine(), units=1)
    graph = GirGraph(parse(MEAN.format(n=1, h=56, w=56, c=256)), hw)
    best, _ = graph.optimum()
    assert best.value("vector") == 16 and best.value("rows") * best.value("tile") >= 8
    rows = np.array([make_schedule({"vector": 16, "rows": rows}).row for rows in (1, 2, 4, 8)])
    assert (np.diff(graph.latencies(rows)) < 0).all()
