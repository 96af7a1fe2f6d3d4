"""Dataflow graphs: text that parses back, outputs in float64, bounds that hold and that faults do not pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

from gensor_gym import dataflow
from gensor_gym.dataflow.bounds import Bounded
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Map, Reduce, Value
from gensor_gym.dataflow.scalars import SCALARS
from gensor_gym.dataflow.suite import FACTORIES
from tests.support.dataflows import in_float32, inputs_of, of_suite, random_dataflow


def is_within(found: np.ndarray, expected: Bounded) -> bool:
    """Whether every element is as near as its bound says, and what is no finite number is the same."""
    finite = np.isfinite(expected.value)
    with np.errstate(all="ignore"):
        near = np.abs(found - expected.value) <= expected.error
    return bool(np.all(np.where(finite, near, np.isclose(found, expected.value, equal_nan=True))))


def outcomes(graph: Dataflow, inputs: list[np.ndarray], seed: int) -> list[tuple[np.ndarray, Bounded]]:
    """Of every output: in float32 with sums in an order of the seed's, and what is expected."""
    found = in_float32(graph, inputs, np.random.default_rng(seed))
    return list(zip(found, dataflow.evaluate(graph, inputs), strict=True))


@pytest.mark.parametrize("name", FACTORIES)
def test_graphs_of_the_suite_parse_back_and_keep_their_bounds(name: str) -> None:
    graph = of_suite(name)
    assert graph.name == name and dataflow.parse(dataflow.text_of(graph)) == graph
    for seed, scale in enumerate((1.0, 8.0)):
        inputs = inputs_of(graph, seed, scale)
        for found, expected in outcomes(graph, inputs, seed):
            assert is_within(found, expected) and np.isfinite(expected.error).all()


EXPECTED = {
    "softmax": lambda x: special.softmax(x, axis=1),
    "masked_softmax": lambda x, mask: special.softmax(x * 0.125 + mask, axis=1),
    "layernorm": lambda x, g, b: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * g + b,
    "rmsnorm": lambda x, g: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * g,
    "norm": lambda x: np.linalg.norm(x).reshape(1, 1),
    "bias_gelu": lambda x, b: (x + b) * special.ndtr(x + b),
    "swiglu": lambda gate, up: gate * special.expit(gate) * up,
    "transpose_relu": lambda x: np.maximum(np.einsum("abcd->cadb", x), 0),
    "gelu": lambda x: x * special.ndtr(x),
    "relu_add": lambda x, r: np.where(x > 0, x, 0) + r,
    "relu_sub": lambda x, r: np.where(x > 0, x, 0) - r,
    "bias": lambda x, b: x + b,
    "reduce_mean": lambda x: x.mean(2, keepdims=True),
    "transpose_last": lambda x: np.einsum("abc->acb", x),
    "kv_concat": lambda before, now: np.concatenate([before, now], 1),
    "channel_shuffle": lambda x: x.reshape(2, 3, 4, 2, 3).swapaxes(1, 2).reshape(2, 12, 2, 3),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_suite_computes_what_its_names_say(name: str) -> None:
    graph = of_suite(name)
    inputs = [array.astype(np.float64) for array in inputs_of(graph, 3)]
    np.testing.assert_allclose(dataflow.evaluate(graph, inputs)[0].value, EXPECTED[name](*inputs), rtol=1e-9, atol=1e-12)


def test_rotary_embedding_turns_pairs_of_halves() -> None:
    graph = of_suite("rope")
    x, angles = np.random.default_rng(0).standard_normal((3, 2, 10)), np.random.default_rng(1).standard_normal((3, 1, 5))
    (found,) = dataflow.evaluate(graph, [x, np.cos(angles), np.sin(angles)])
    turned = (x[..., :5] + 1j * x[..., 5:]) * np.exp(1j * angles)
    np.testing.assert_allclose(found.value, np.concatenate([turned.real, turned.imag], -1))


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int) -> None:
    graph = random_dataflow(seed)
    assert dataflow.parse(dataflow.text_of(graph)) == graph
    inputs = inputs_of(graph, seed)
    for found, expected in outcomes(graph, inputs, seed):
        assert found.shape == expected.value.shape and is_within(found, expected)


FAULTS: dict[str, tuple[str, str, str, float]] = {
    "no maximum subtracted": ("softmax", "exp(x - top_wide)", "exp(x)", 60.0),
    "another axis": ("softmax", "reduce_sum(e, axes=[1])", "reduce_sum(e, axes=[0])", 1.0),
    "no eps": ("layernorm", "+ 1e-05", "+ 0.0", 1e-3),
    "a tail that is dropped": ("rmsnorm", "reduce_sum(squares, axes=[1])", "reduce_sum(kept, axes=[1])", 1.0),
    "the mean of squares": ("layernorm", "squares = centred * centred", "squares = x * x", 1.0),
    "no offset": ("layernorm", "+ beta_wide", "+ 0.0 * beta_wide", 1.0),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_leave_the_bounds(name: str) -> None:
    factory, right, wrong, scale = FAULTS[name]
    graph = of_suite(factory)
    text = dataflow.text_of(graph)
    assert right in text
    text = text.replace(right, wrong)
    if "kept" in wrong:
        text = text.replace("    total =", "    kept = slice(squares, axis=1, start=0, stop=36)\n    total =")
    if wrong == "exp(x)":
        text = text.replace("    top = reduce_max(x, axes=[1])\n", "").replace("    top_wide = broadcast(top, to=[5, 37])\n", "")
    inputs = inputs_of(graph, 1, scale)
    (found,) = in_float32(dataflow.parse(text), inputs, np.random.default_rng(0))
    assert not is_within(found, dataflow.evaluate(graph, inputs)[0])


def test_rows_that_see_nothing_are_no_numbers_and_others_are() -> None:
    graph = of_suite("masked_softmax")
    x, mask = inputs_of(graph)
    mask = np.where(mask > 0, 0.0, -np.inf).astype(np.float32)
    mask[2], mask[3] = -np.inf, 0.0
    (expected,) = dataflow.evaluate(graph, [x, mask])
    assert np.isnan(expected.value[2]).all() and not np.isnan(np.delete(expected.value, 2, 0)).any()
    (found,) = in_float32(graph, [x, mask], np.random.default_rng(0))
    assert is_within(found, expected)
    found[2] = 0.0
    assert not is_within(found, expected)
    assert (expected.error[1][mask[1] == -np.inf] < 1e-30).all()  # what is masked is zero, not something small


@pytest.mark.parametrize("name", SCALARS)
def test_no_argument_within_its_error_leaves_the_bound_of_a_function(name: str) -> None:
    scalar, rng = SCALARS[name], np.random.default_rng(0)
    values = [3 * rng.standard_normal(2000) for _ in range(scalar.arity)]
    if name == "where":
        values[0] = rng.integers(0, 2, 2000).astype(float)
    errors = [10.0 ** rng.uniform(-8, 0, 2000) * rng.integers(0, 2, 2000) for _ in range(scalar.arity)]
    if name == "where":
        errors[0] = rng.integers(0, 2, 2000).astype(float)
    with np.errstate(all="ignore"):
        bound, here = scalar.error(*values, *errors), scalar.value(*values)
        for _ in range(50):
            shares = [rng.choice([-1.0, 1.0, *rng.uniform(-1, 1, 2)], 2000) for _ in values]
            moved = [value + error * share for value, error, share in zip(values, errors, shares, strict=True)]
            if name == "where":
                moved[0] = np.where(errors[0] > 0, rng.integers(0, 2, 2000), values[0])
            off = np.abs(scalar.value(*moved) - here)
            ok = (off <= bound * (1 + 1e-9) + 1e-13 * (1 + np.abs(here))) | np.isnan(here) | (np.isnan(off) & np.isinf(bound))
            assert ok.all(), (name, [part[~ok][0] for part in (*values, *errors, bound, off)])


BAD: dict[str, str] = {
    "x = 3": "one function",
    "def f(x: float32[2]):\n    y = x +\n    return y": "does not parse",
    "def f(x: float64[2]):\n    y = x + 1\n    return y": "x: float32",
    "def f(x: float32[0]):\n    y = x + 1\n    return y": "extents of 1 or more",
    "def f(x: float32[2] = 3):\n    y = x + 1\n    return y": "without defaults",
    "def f(x: float32[2]):\n    y = z + 1\n    return y": "made before in place of 'z'",
    "def f(x: float32[2]):\n    y = expp(x)\n    return y": "did you mean exp",
    "def f(x: float32[2]):\n    y = __import__('os')\n    return y": "a function of",
    "def f(x: float32[2]):\n    y = x.shape\n    return y": "names, numbers",
    "def f(x: float32[2]):\n    y = exp(x, x)\n    return y": "expected 1",
    "def f(x: float32[2]):\n    x = x + 1\n    return x": "a new name",
    "def f(x: float32[2]):\n    y = 1 + 2\n    return y": "at least one value",
    "def f(x: float32[2]):\n    y = x + 1": "`return`",
    "def f(x: float32[2]):\n    y = x + 1\n    return x": "made by no node",
    "def f(x: float32[2], z: float32[2]):\n    y = x + 1\n    return y": "read by nothing",
    "def f(x: float32[2], z: float32[3]):\n    y = x + z\n    return y": "line 2",
    "def f(x: float32[2]):\n    y = reduce_sum(x, axes=[1])\n    return y": "expected some of 0 to 0",
    "def f(x: float32[2]):\n    y = reduce_sum(x)\n    return y": "axes",
    "def f(x: float32[2, 3]):\n    y = transpose(x, order=[0, 0])\n    return y": "each of 0 to 1 once",
    "def f(x: float32[6]):\n    y = reshape(x, to=[4])\n    return y": "expected 6 elements",
    "def f(x: float32[6]):\n    y = slice(x, axis=0, start=3, stop=9)\n    return y": "start < stop",
    "def f(x: float32[6]):\n    y = pad(x, axis=0, before=-1, after=0)\n    return y": "expected 0 or more",
    "def f(x: float32[2, 3]):\n    y = contract(x, x, operator='gemm(m=2, n=4, k=5)')\n    return y": "expected [2, 5]",
    "def f(x: float32[2]):\n    y = " + "-(" * 80 + "x" + ")" * 80 + "\n    return y": "nested at most",
    "def f(x: float32[2]):\n    y = " + "(" * 5000 + "x" + ")" * 5000 + "\n    return y": "does not parse",
    "def f(x: float32[100000, 1000000]):\n    y = x + 1\n    return y": "elements",
    "def f(" + "x" * 200_000 + ": float32[2]):\n    y = x\n    return y": "characters",
    "def f(x: float32[2]):\n" + "    y = x + 1\n" * 5000 + "    return y": "lines",
    **{
        f"def f(x: float32[4, 4]):\n    y = {line}\n    return y": word
        for line, word in {
            "-" * 500 + "x": "nested at most",
            "x + " * 1000 + "x": "nested at most",
            "-" * 50_000 + "x": "nested too deeply",
            "reduce_sum(x, axes=" + "-" * 900 + "inf)": "nested at most",
            "reduce_sum(x, axes=[1.0])": "axes=[1.0]: expected a list",
            "slice(x, axis=0, start=0.5, stop=2.5)": "start=0.5: expected a whole number",
            "x * " + "9" * 400: "names, numbers",
            "pad(x, axis=0, before=1, after=1, value='nan')": "value='nan': expected a number",
            "concat(axis=0)": "of no values",
            "broadcast(x, to=['a', 4, 4])": "to=['a', 4, 4]: expected",
            "slice(x, axis=True, start=0, stop=2)": "axis=True",
            "pad(x, axis=0, before=" + "9" * 400 + ", after=0)": "whole number up to",
            "contract(x, x, operator=5)": "operator=5",
            f"broadcast(x, to={[1] * 5000})": "at most 8",
        }.items()
    },
}


@pytest.mark.parametrize(("text", "word"), BAD.items(), ids=range(len(BAD)))
def test_what_is_no_graph_is_refused_in_words(text: str, word: str) -> None:
    with pytest.raises(ValueError) as refused:
        dataflow.parse(text)
    assert word in str(refused.value)


def test_products_are_nodes_and_carry_their_errors() -> None:
    graph = dataflow.parse("""
def scores(q: float32[4, 8], k: constant(float32[8, 6])):
    s = contract(q, k, operator='gemm(m=4, n=6, k=8)')
    y = exp(s * 0.5)
    return y
""")
    inputs = inputs_of(graph)
    (expected,) = dataflow.evaluate(graph, inputs)
    np.testing.assert_allclose(expected.value, np.exp(0.5 * (inputs[0].astype(float) @ inputs[1])), rtol=1e-12)
    assert is_within(np.exp(F32 * (inputs[0] @ inputs[1])), expected) and (expected.error < 1e-4 * expected.value).all()
    assert graph.flops == 2 * 4 * 6 * 8 + 11 * 4 * 6 and graph.values["k"].constant
    with pytest.raises(ValueError, match="without epilogue"):
        dataflow.parse(dataflow.text_of(graph).replace("k=8)'", "k=8)+relu'"))


F32 = np.float32(0.5)


def test_bytes_and_constants() -> None:
    graph = dataflow.make("add_layernorm", m=4, n=8)
    assert graph.compulsory_bytes == 4 * (4 * 4 * 8 + 2 * 8)
    assert [name for name, value in graph.values.items() if value.constant] == ["gamma", "beta", "gamma_wide", "beta_wide"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("f", (), (), ("y",)), "at least one node"),
        (("f", (Value("x", (2,)),), (("y", Reduce("x", "sum", (0,))),), ("y", "y")), "twice"),
    ],
)
def test_graphs_that_are_none(arguments: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Dataflow(*arguments)


def test_names_and_arguments_of_the_suite() -> None:
    with pytest.raises(ValueError, match="did you mean softmax"):
        dataflow.make("softmaxx", m=2, n=2)
    with pytest.raises(ValueError, match="softmax"):
        dataflow.make("softmax", m=2)
    assert isinstance(dict(dataflow.make("softmax", m=2, n=3).nodes)["e"], Map)
