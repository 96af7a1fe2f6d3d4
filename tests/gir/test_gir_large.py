"""Operators that are too large: refused by name, and long sums, of which not one element may be missing."""

from __future__ import annotations

import numpy as np
import pytest

from agents import optimize
from agents.strategy import default_for
from gensor_gym.dataflow.bounds import exact, summed
from gensor_gym.dataflow.evaluate import UNIT, evaluate
from gensor_gym.dataflow.suite import make
from gensor_gym.dataflow.text import parse
from gensor_gym.gir.graph import GirGraph
from gensor_gym.measure.answers.fused import fused_draws
from gensor_gym.measure.backend import measure
from gensor_gym.measure.measurement import Status
from tests.support.gir_cases import machine

LARGE = {
    "norm(m=3, n=99999989)": "norm: total adds up 299999967 elements, expected at most 16777216 in float32",
    "swiglu(m=65536, n=65536)": r"gate has 4294967296 elements, expected at most 100663296",
    "layernorm(m=10000, n=9973)": r"\d{9} scalar functions of elements, expected at most 671088640 to be verified",
    "softmax(m=99999999999999999999, n=5)": "softmax: m=99999999999999999999, expected a whole number of 1 to 17179869184",
    "reduce_mean(a=2, b=1, c=33554432)": "total adds up 33554432 elements, expected at most 16777216 in float32",
}


@pytest.mark.parametrize("text", LARGE)
def test_what_cannot_be_verified_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match=LARGE[text]):
        optimize(text, hardware=machine(), backend="cpu", trials=1)


def test_what_is_only_modelled_may_be_larger_but_for_sums_without_a_bound() -> None:
    graph = GirGraph(make("swiglu", 65536, 65536), machine())
    assert graph.least is not None and graph.least > 0.1
    assert GirGraph(make("norm", 4096, 4096), machine()).nest.parts > 1
    with pytest.raises(ValueError, match="adds up 16781312 elements, expected at most 16777216"):
        GirGraph(make("norm", 4096, 4097), machine())


def chain(sums: int) -> str:
    """The text of a graph of which so many values have to be placed."""
    lines = (f"    s{i} = reduce_sum(a{i}, axes=[1])\n    a{i + 1} = a{i} - s{i} * 0.01\n" for i in range(sums))
    return f"def f(x: float32[8, 90]):\n    a0 = x + 1.0\n{''.join(lines)}    return a{sums}\n"


@pytest.mark.parametrize(("sums", "expected"), [(5, "exhaustive"), (7, "gir_descent")])
def test_a_space_that_takes_minutes_is_descended_in(sums: int, expected: str) -> None:
    assert default_for(parse(chain(sums)), machine()) == expected
    if expected == "gir_descent":
        found = optimize(chain(sums), hardware=machine(), backend="analytic", trials=3)
        assert len(found.trace) == 3 and found.seconds < found.task.graph().latency(found.task.graph().initial())


def test_a_trial_of_what_cannot_be_verified_says_so() -> None:
    graph = make("swiglu", 65536, 65536)
    found = measure(graph, GirGraph(graph, machine()).initial(), machine(), "cpu")
    assert found.status is Status.COMPILE_ERROR and "expected at most 100663296 to be verified" in found.error


@pytest.mark.parametrize(("name", "sizes"), [("norm", (131, 151)), ("rmsnorm", (2, 20011)), ("reduce_mean", (1, 2, 20011))])
def test_one_element_that_a_long_sum_misses_is_seen(name: str, sizes: tuple[int, ...]) -> None:
    graph = make(name, *sizes)
    draw = fused_draws(graph, 0)[2]
    right = draw.outputs[0].value.astype(np.float32)
    assert draw.fault(right) == ""
    x = draw.inputs[0].copy()
    place = tuple(int(i) for i in np.argwhere(x == 1.0)[0])
    x[place] = 0.0
    without = evaluate(graph, (x, *draw.inputs[1:]))[0].value.astype(np.float32)
    assert "elements wrong" in draw.fault(np.where(right == 0.0, right, without))


def test_sums_of_whole_numbers_are_exact_and_others_are_not() -> None:
    graph = parse("def f(x: float32[2, 40000]):\n    s = x * x\n    y = reduce_sum(s, axes=[1])\n    return y\n")
    x = np.rint(np.random.default_rng(0).standard_normal((2, 40000))).astype(np.float32)
    assert np.all(evaluate(graph, (x,))[0].error == 0.0)
    for other in (x * np.float32(1.0 + 2.0**-12), x + np.float32(0.5)):  # squares that float32 does not hold, no whole numbers
        assert np.all(evaluate(graph, (other,))[0].error > 1.0)


def test_sums_of_whole_numbers_past_what_float32_holds_are_rounded() -> None:
    large = exact(np.full((1, 5), 2.0**22))
    assert summed(large, (1,), UNIT["float32"]).error[0, 0] > 0.0
    assert summed(exact(np.full((1, 4), 2.0**22)), (1,), UNIT["float32"]).error[0, 0] == 0.0
