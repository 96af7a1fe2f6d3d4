"""The canonical loops of dataflow graphs: rows, columns, passes, what crosses them, and what they cannot say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gensor_gym.dataflow.suite import FACTORIES, make
from gensor_gym.dataflow.text import parse
from gensor_gym.gir.nest import Access, RowNest, row_nest
from gensor_gym.gir.placement import Level, passes_of
from gensor_gym.gir.rules import GirRules
from tests.support.gir_cases import machine

ROWS = {"m": 6, "n": 40}
LOOPS: dict[str, tuple[dict[str, int], tuple[int, ...], int, int, tuple[str, ...]]] = {
    "softmax": (ROWS, (6,), 40, 3, ("x", "e")),
    "masked_softmax": (ROWS, (6,), 40, 3, ("scores", "e")),
    "layernorm": (ROWS, (6,), 40, 3, ("x", "centred")),
    "add_layernorm": (ROWS, (6,), 40, 3, ("s", "centred")),
    "rmsnorm": (ROWS, (6,), 40, 2, ("x",)),
    "norm": (ROWS, (), 240, 1, ()),
    "bias_gelu": (ROWS, (6,), 40, 1, ()),
    "bias_tanh_gelu": (ROWS, (6,), 40, 1, ()),
    "swiglu": (ROWS, (6,), 40, 1, ()),
    "rope": ({"t": 3, "h": 2, "d": 10}, (3, 2), 5, 1, ()),
    "channel_shuffle": ({"n": 2, "groups": 3, "c": 4, "h": 2, "w": 5}, (2, 4, 3), 10, 1, ()),
    "transpose_relu": ({"a": 2, "b": 3, "c": 5, "d": 4}, (5, 2, 4), 3, 1, ()),
    "transpose_last": ({"a": 2, "b": 3, "c": 5}, (2, 5), 3, 1, ()),
    "relu_add": ({"a": 2, "b": 3, "c": 5, "d": 4}, (30,), 4, 1, ()),
    "relu_sub": ({"a": 2, "b": 3, "c": 5, "d": 4}, (30,), 4, 1, ()),
    "bias": (ROWS, (6,), 40, 1, ()),
    "reduce_mean": ({"a": 2, "b": 3, "c": 5}, (6,), 5, 1, ()),
    "gelu": (ROWS, (6,), 40, 1, ()),
    "kv_concat": ({"h": 2, "t": 3, "d": 5}, (2, 3), 5, 1, ()),
}
"""Extents -> rows, columns, passes, what crosses them."""


def test_every_factory_has_its_loops_here() -> None:
    assert set(LOOPS) == set(FACTORIES)


@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_the_suite(name: str) -> None:
    sizes, rows, columns, passes, crossing = LOOPS[name]
    nest = row_nest(make(name, **sizes))
    assert (nest.row_extents, nest.columns, nest.passes, nest.crossing) == (rows, columns, passes, crossing)
    assert nest.rows == np.prod(rows) and {name for name, _ in nest.stores} <= set(nest.cell)
    seen: set[str] = set()
    for cell in nest.cells:
        assert set(cell.sources) <= seen
        seen.add(cell.name)


@pytest.mark.parametrize("name", LOOPS)
def test_every_element_is_read_and_written_where_it_lies(name: str) -> None:
    """Going through the loops touches every element of every output once, and of every input but what a slice leaves out."""
    nest = row_nest(make(name, **LOOPS[name][0]))
    graph = nest.graph
    written = {output.name: np.zeros(output.size, int) for output in graph.outputs}
    read = {value.name: np.zeros(value.size, int) for value in graph.inputs}
    for cell, access in nest.stores:
        np.add.at(written[access.tensor], places(nest, access, nest.cell[cell].wide), 1)
    for cell in nest.cells:
        if isinstance(cell.made, Access):
            np.add.at(read[cell.made.tensor], places(nest, cell.made, cell.wide), 1)
    assert all((count >= 1).all() for count in (*written.values(), *read.values()))
    # The new token of kv_concat is no loop of its own: it is written again for each of those before it.
    assert name == "kv_concat" or all((count == 1).all() for count in written.values())


def places(nest: RowNest, access: Access, wide: bool) -> np.ndarray:
    """Where the elements of an access lie, over all loops."""
    digits = np.indices((*nest.row_extents, nest.columns if wide else 1)).reshape(len(nest.row_extents) + 1, -1)
    return access.offset + np.array([*access.rows, access.column]) @ digits


@pytest.mark.parametrize("name", LOOPS)
def test_extents_of_one(name: str) -> None:
    ones: dict[str, Any] = {key: 2 if key == "d" and name == "rope" else 1 for key in LOOPS[name][0]}
    nest = row_nest(make(name, **ones))
    assert nest.rows == 1 and nest.columns == 1 and nest.passes >= 1
    assert passes_of(nest, (Level.DRAM,) * len(nest.crossing)).makes


def text_of(body: str, given: str = "x: float32[4, 6]", returned: str = "y") -> str:
    lines = "\n".join(f"    {line}" for line in body.split("; "))
    return f"def f({given}):\n{lines}\n    return {returned}\n"


REFUSED = {
    "contract": (
        text_of('y = contract(x, z, operator="gemm(m=4, n=5, k=6)")', "x: float32[4, 6], z: float32[6, 5]"),
        "f: y, a contract of what is computed, needs a kernel of its own",
    ),
    "pad in the middle": (
        text_of("e = exp(x); p = pad(e, axis=1, before=1, after=0); y = exp(p)"),
        "f: p, a pad of what is computed, needs a kernel of its own",
    ),
    "pad of an output": (
        text_of("e = exp(x); y = pad(e, axis=1, before=1, after=0)"),
        "f: y, a pad of what is computed, needs a kernel of its own",
    ),
    "concat in the middle": (
        text_of("a = exp(x); b = concat(a, x, axis=0); y = exp(b)"),
        "f: b, a concat of what is computed, needs a kernel of its own",
    ),
    "slice in the middle": (
        text_of("a = exp(x); b = slice(a, axis=0, start=0, stop=2); y = exp(b)"),
        "f: b, a slice of what is computed, needs a kernel of its own",
    ),
    "reshape in the middle": (
        text_of("a = exp(x); b = reshape(a, to=[24]); y = exp(b)"),
        "f: b, a reshape of what is computed, needs a kernel of its own",
    ),
    "other axes": (
        text_of("a = reduce_sum(x, axes=[1]); b = reduce_sum(x, axes=[0]); y = a + b"),
        "f: reductions over different axes, expected the same everywhere",
    ),
    "a matrix and its transpose": (
        text_of("t = transpose(x, order=[1, 0]); y = x + t", "x: float32[4, 4]"),
        "f: two axes of x are one axis elsewhere, expected loops of their own",
    ),
    "too many axes": (
        text_of(
            "t = transpose(x, order=[5, 4, 3, 2, 1, 0]); y = exp(t)", "x: float32[2, 2, 2, 2, 2, 2]"
        ),
        "f: 5 axes of rows and 1 of columns that cannot be merged, expected at most 4 and 1",
    ),
    "outputs of other axes": (
        text_of("y = exp(x); u = exp(z)", "x: float32[9, 50], z: float32[1, 40]", "y, u"),
        "f: loops go through 18000 points, expected at most 16384, or a join by itself",
    ),
    "too many values": (
        text_of("; ".join(["v0 = exp(x)", *(f"v{i + 1} = exp(v{i})" for i in range(64))]), returned="v64"),
        "f: 66 values of one nest, expected at most 64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_rows_cannot_say_is_refused_in_one_line(name: str) -> None:
    text, words = REFUSED[name]
    with pytest.raises(ValueError) as error:
        row_nest(parse(text))
    assert str(error.value) == words


def test_means_of_one_image_scale_another_in_one_loop() -> None:
    """The pixels that are added up and those that are scaled are the same columns, else each pixel would add up all."""
    body = "s = reduce_sum(x, axes=[1, 2]); w = broadcast(s, to=[9, 7, 7]); v = broadcast(z, to=[9, 7, 7]); y = w * v"
    nest = row_nest(parse(text_of(body, "x: float32[9, 7, 7], z: float32[1, 7, 7]")))
    assert (nest.row_extents, nest.columns, nest.passes) == ((9,), 49, 2)


@pytest.mark.parametrize("joined", ["w, x", "x, w"])
def test_columns_are_those_of_the_largest_part_of_a_join(joined: str) -> None:
    """A line before a matrix, as in relative positions, is no reason to go through the matrix down its columns."""
    nest = row_nest(parse(text_of(f"y = concat({joined}, axis=1)", "w: float32[40, 1], x: float32[40, 95]")))
    wide = next(access for name, access in nest.stores if name == "x")
    assert (nest.columns, nest.row_extents, wide.column) == (95, (40,), 1)


def test_more_values_across_passes_than_a_schedule_places_are_refused() -> None:
    body = "; ".join([*(f"a{i} = exp(x) + {i}.0" for i in range(17)), "s = " + " + ".join(f"a{i}" for i in range(17)),
                      "t = reduce_sum(s, axes=[1])", *(f"y{i} = a{i} * t" for i in range(17))])  # fmt: skip
    nest = row_nest(parse(text_of(body, returned=", ".join(f"y{i}" for i in range(17)))))
    with pytest.raises(ValueError, match="f: 17 values cross passes, expected at most 16"):
        GirRules(nest, machine())


def test_a_value_that_is_made_late_reads_its_sources_late() -> None:
    nest = row_nest(parse(text_of("top = reduce_max(x, axes=[1]); e = exp(x); y = e - top")))
    assert nest.uses == {"x": (0, 1), "e": (1,), "y": (1,)} and nest.crossing == ("x",)
    assert passes_of(nest, (Level.DRAM,)).makes == (("x",), ("x", "e", "y"))


def test_a_number_of_the_row_may_be_repeated_along_the_columns() -> None:
    nest = row_nest(parse(text_of("top = reduce_max(x, axes=[1]); y = broadcast(top, to=[4, 6]); z = x - y", returned="y, z")))
    assert (nest.rows, nest.columns) == (4, 6) and all(nest.cell[name].wide for name, _ in nest.stores)
