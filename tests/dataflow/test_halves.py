"""Graphs with values of 16 bits: what has which type, what is refused, and how far a correct kernel may be from the value."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym.dataflow.bounds import exact, nearest_half, stored
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.nodes import HALVES
from gensor_gym.dataflow.text import parse, text_of
from gensor_gym.operators.inputs import decode, encode, from_bfloat16

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
def test_what_is_refused(old: str, new: str, said: str) -> None:
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
