"""Nodes that compute in int64: text, exact values with wrap-around, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_gym.dataflow.bounds import exact
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.nodes import Concat, Gather, Pad, Slice, Transpose
from gensor_gym.dataflow.text import parse, text_of
from gensor_gym.dataflow.whole import LEAST, MOST, computed_node
from gensor_gym.gir.nest import row_nest
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
