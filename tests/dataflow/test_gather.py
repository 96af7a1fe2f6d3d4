"""Rows that ids choose, and inputs of whole numbers: text, values in float64, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import dataflow
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Gather, Value
from gensor_gym.operators.inputs import random_inputs

TEXT = """def words(table: constant(float32[7, 5]), ids: int64[2, 3], mask: bool[2, 3, 1]):
    rows = gather(table, ids)
    seen = rows * mask
    return seen
"""


def test_text_values_and_limits() -> None:
    graph = dataflow.parse(TEXT)
    assert dataflow.parse(dataflow.text_of(graph)) == graph and graph.id_limits == {"ids": 7}
    table, ids, mask = random_inputs(graph, np.random.default_rng(0))
    assert (ids.dtype, mask.dtype) == (np.int64, np.bool_) and set(np.unique(ids)) <= set(range(7))
    (found,) = dataflow.evaluate(graph, [table, ids, mask])
    np.testing.assert_array_equal(found.value, table[ids].astype(np.float64) * mask)
    assert graph.values["mask"].nbytes == 6 and graph.values["ids"].nbytes == 48


def test_ids_of_no_row_give_no_numbers() -> None:
    graph = Dataflow("f", (Value("t", (3, 2)), Value("i", (4,), "int32")), (("y", Gather("t", "i")),), ("y",))
    (found,) = dataflow.evaluate(graph, [np.ones((3, 2), np.float32), np.array([0, -1, 3, 2], np.int32)])
    assert np.isnan(found.value).all(axis=1).tolist() == [False, True, True, False] and (found.error == 0).all()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("int64[2, 3]", "int16[2, 3]", "a type such as `ids: float32.4, 4.`, of float32, bfloat16, float16, int8, int32"),
        ("gather(table, ids)", "gather(table)", "missing 1 required positional argument"),
        ("constant(float32[7, 5])", "float32[16777217, 5]", "table of shape .16777217, 5.: expected 1 to 16777216"),
        ("return seen", "flat = reshape(ids, to=[6])\n    return seen, flat", "output flat is of int64, expected float32"),
    ],
)
def test_what_is_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        dataflow.parse(TEXT.replace(old, new))


def test_bytes_are_those_of_parts_that_are_read() -> None:
    graph = dataflow.parse(TEXT)
    assert graph.compulsory_bytes == 6 * 5 * 4 + 6 * 8 + 6 + 30 * 4
    few = dataflow.parse(TEXT.replace("[7, 5]", "[7000, 5]").replace("[2, 3", "[1, 2"))
    assert few.compulsory_bytes == 2 * 5 * 4 + 2 * 8 + 2 + 10 * 4
    one = "def f(x: float32[4, 8, 5]):\n    y = slice(x, axis=1, start=0, stop=1)\n    z = reshape(y, to=[4, 5])\n    return z"
    part = dataflow.parse(one)
    assert part.compulsory_bytes == 2 * 20 * 4
    both = dataflow.parse("def f(x: float32[8]):\n    y = slice(x, axis=0, start=0, stop=2)\n    z = exp(x)\n    return y, z")
    assert both.compulsory_bytes == (8 + 2 + 8) * 4
