"""Types of dataflow: integers, floats of 16 bits, gathers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_gym import dataflow
from gensor_gym.dataflow.bounds import exact, nearest_half, stored
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import HALVES, Concat, Gather, Pad, Slice, Transpose, Value
from gensor_gym.dataflow.text import parse, text_of
from gensor_gym.dataflow.whole import LEAST, MOST, computed_node
from gensor_gym.gir.nest import row_nest
from gensor_gym.operators.inputs import decode, encode, from_bfloat16, random_inputs
from tests.support.row_integers import random_integers_dataflow

INTEGERS = st.one_of(st.sampled_from([LEAST, MOST, 0, 1, -1, 2**24 + 1, 2**53 + 1]), st.integers(LEAST, MOST), st.integers(-9, 9))
TWO = """def f(a: int64[1], b: int64[1]):
    y: int64 = EXPRESSION
    return y
"""


def wrapped(number: int) -> int:
    """The number as int64."""
    return (number - LEAST) % (1 << 64) + LEAST


EXPECTED = {
    "a + b": lambda a, b: wrapped(a + b), "a - b": lambda a, b: wrapped(a - b), "a * b": lambda a, b: wrapped(a * b),
    "-a + 0 * b": lambda a, b: wrapped(-a), "absolute(a) + 0 * b": lambda a, b: wrapped(abs(a)),
    "a / b": lambda a, b: wrapped(a // b) if b else 0,
    "fmod(a, b)": lambda a, b: (abs(a) % abs(b)) * (1 if a >= 0 else -1) if b else 0,
    "bits_and(a, b)": lambda a, b: a & b, "maximum(a, b)": max, "minimum(a, b)": min, "a < b": lambda a, b: int(a < b),
    "at_most(a, b)": lambda a, b: int(a <= b), "where(a, b, 18446744073709551557)": lambda a, b: b if a else -59,
    "round(a) - 9223372036854775807 + 0 * b": lambda a, b: wrapped(a - MOST),
}  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(INTEGERS, INTEGERS)
def test_functions_are_those_of_python_modulo_64_bits(a: int, b: int) -> None:
    for text, expected in EXPECTED.items():
        (found,) = evaluate(parse(TWO.replace("EXPRESSION", text)), [np.array([a]), np.array([b])])
        assert found.value.dtype == np.int64 and found.value.tolist() == [expected(a, b)], text


def test_text_is_read_back() -> None:
    for seed in range(20):
        graph = random_integers_dataflow(seed)
        assert parse(text_of(graph)) == graph and parse(text_of(graph)).digest == graph.digest
    plain = text_of(random_integers_dataflow(0)).replace(": int64 =", " =")
    assert parse(plain).digest != random_integers_dataflow(0).digest


def test_moves_keep_every_bit() -> None:
    far = np.array([[LEAST, MOST, 5], [2**53 + 1, -7, 0]])
    known = {"x": far, "ids": np.array([1, 0, 2]), "half": np.array([[0.5, -1.5, np.nan], [np.inf, -np.inf, 1e30]], np.float32)}
    assert computed_node(Transpose("x", (1, 0)), known).tolist() == far.T.tolist()
    assert computed_node(Slice("x", 1, 0, 2), known).tolist() == far[:, :2].tolist()
    assert computed_node(Gather("x", "ids"), known).tolist() == [*far[[1, 0]].tolist(), [0, 0, 0]]
    assert computed_node(Concat(("x", "half"), 0), known).tolist() == [*far.tolist(), [0, -1, LEAST], [MOST, LEAST, MOST]]
    assert computed_node(Pad("x", 1, 1, 0, 9.0), known).tolist() == [[9, *row] for row in far.tolist()]


def test_a_float_node_reads_an_integer_as_float32() -> None:
    graph = parse("def f(x: int64[2]):\n    n: int64 = x + 1\n    y = n * 1.0\n    return y, n\n")
    y, n = evaluate(graph, [np.array([2**24, 2**40])])
    assert y.value.tolist() == [2.0**24, 2.0**40] and n.value.tolist() == [2**24 + 1, 2**40 + 1]
    assert exact(n.value).error.tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="f: nodes compute in float32 and int64, expected one type"):
        row_nest(graph)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("y: int32 = x + 1", "line 2: `y: int32 = x \\+ 1`: expected `y: int64 = expression`"),
        ("y: int64", "expected `y: int64 = expression`"),
        ("y: int64 = reshape(x, to=[3, 2])", "y has no form in int64, expected float32"),
        ("y: int64 = contract(x, z, operator='gemm(m=2, n=3, k=3)')", "y has no form in int64"),
        ("y: int64 = exp(x)", "y has no form in int64"), ("y: int64 = 0.5 * x", "y has no form in int64"),
        ("y = reshape(x, to=[3, 2])", "output y is of int64, expected float32"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse(f"def f(x: int64[2, 3], z: float32[3, 3]):\n    {text}\n    return y\n")


TEXT = """def mixed(x: bfloat16[4, 6], w: constant(bfloat16[6, 5]), ids: int64[3]):
    y = contract(x, w, operator='gemm(m=4, n=5, k=6, dtype="bfloat16")')
    e: bfloat16 = exp(y)
    s = reduce_sum(e, axes=[1])
    part = slice(e, axis=1, start=1, stop=3)
    turned = transpose(part, order=[1, 0])
    rows = gather(x, ids)
    both = concat(part, s, axis=1)
    return turned, rows, both
"""


def test_types_of_values() -> None:
    graph = parse(TEXT)
    found = {name: value.dtype for name, value in graph.values.items()}
    assert [name for name, kind in found.items() if kind == "bfloat16"] == ["x", "w", "y", "e", "part", "turned", "rows"]
    assert found["s"] == found["both"] == "float32", "a sum that nothing rounds, and a value that is joined of two types"
    assert graph.values["e"].nbytes == 2 * 4 * 5 and graph.type_of("e") == "float32"
    assert parse(text_of(graph)) == graph and parse(text_of(graph)).digest == graph.digest
    assert graph.digest != parse(TEXT.replace("e: bfloat16 =", "e =")).digest


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("e: bfloat16", "e: bfloat17", "`e: int64 = expression`, of int64, bfloat16, float16"),
        ("part = slice", "part: bfloat16 = slice", "part of bfloat16: expected a map or reduction that computes in float32"),
        ("bfloat16[6, 5]", "float32[6, 5]", "y reads w of float32, expected bfloat16"),
        (', dtype="bfloat16"', "", "y reads x of bfloat16, expected float32"),
        (', dtype="bfloat16"', ', dtype="tf32"', "expected a sum, product or maximum of float32, bfloat16, float16"),
    ],
)
def test_what_is_refused_halves(old: str, new: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse(TEXT.replace(old, new))


def test_bounds_hold_what_a_kernel_rounds_or_keeps() -> None:
    """A kernel may round every value to its type, or keep all in float32."""
    rng = np.random.default_rng(0)
    for half in HALVES:
        graph = parse(f"def f(x: {half}[5, 40]):\n    a: {half} = exp(x)\n    y: {half} = a * x - 0.3\n    return y\n")
        x = decode(encode(rng.standard_normal((5, 40)), half), half).astype(np.float64)
        (bound,) = evaluate(graph, [encode(x, half)])
        rounded = nearest_half(nearest_half(np.exp(x), half).astype(np.float64) * x - 0.3, half)
        for made in (rounded, np.exp(x) * x - 0.3):
            assert np.all(np.abs(made - bound.value) <= bound.error)
        assert bound.error.max() < 0.1 * np.abs(bound.value).max()


def test_numbers_of_the_type_are_stored_exactly() -> None:
    every = from_bfloat16(np.arange(1 << 16, dtype=np.uint16))
    numbers = every[np.isfinite(every)].astype(np.float64)
    assert not np.any(stored(exact(numbers), "bfloat16").error)
    assert np.array_equal(decode(encode(every, "bfloat16"), "bfloat16"), every, equal_nan=True)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    assert not np.any(stored(exact(halves[np.isfinite(halves)]), "float16").error)
    assert np.isinf(stored(exact(np.array([7e4, 1.0])), "float16").error[0]), "beyond the largest number of float16"
    assert 0 < stored(exact(np.array([1.0 + 2.0**-9])), "bfloat16").error[0] < 2.0**-7


TEXT_GATHER = """def words(table: constant(float32[7, 5]), ids: int64[2, 3], mask: bool[2, 3, 1]):
    rows = gather(table, ids)
    seen = rows * mask
    return seen
"""


def test_text_values_and_limits() -> None:
    graph = dataflow.parse(TEXT_GATHER)
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
def test_what_is_refused_gather(old: str, new: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        dataflow.parse(TEXT_GATHER.replace(old, new))


def test_bytes_are_those_of_parts_that_are_read() -> None:
    graph = dataflow.parse(TEXT_GATHER)
    assert graph.compulsory_bytes == 6 * 5 * 4 + 6 * 8 + 6 + 30 * 4
    few = dataflow.parse(TEXT_GATHER.replace("[7, 5]", "[7000, 5]").replace("[2, 3", "[1, 2"))
    assert few.compulsory_bytes == 2 * 5 * 4 + 2 * 8 + 2 + 10 * 4
    one = "def f(x: float32[4, 8, 5]):\n    y = slice(x, axis=1, start=0, stop=1)\n    z = reshape(y, to=[4, 5])\n    return z"
    part = dataflow.parse(one)
    assert part.compulsory_bytes == 2 * 20 * 4
    both = dataflow.parse("def f(x: float32[8]):\n    y = slice(x, axis=0, start=0, stop=2)\n    z = exp(x)\n    return y, z")
    assert both.compulsory_bytes == (8 + 2 + 8) * 4
