"""Compiled functions that others call: their text is optimised where it ends up, and Python may call them as well."""

from __future__ import annotations

from types import FunctionType

import numba
import numpy as np
import pytest

from gensor_gym.cost import model
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.compiling import parts
from gensor_gym.graph.compiling.parts import Part, is_tried
from tests.support.graph_walks import graph_of

if numba.config.DISABLE_JIT:
    pytest.skip("nothing is compiled", allow_module_level=True)


@lean
def least(values):  # noqa: ANN001, ANN201
    found = values[0]
    for value in values:
        found = min(found, value)
    return found


@lean
def within(values, bound=4):  # noqa: ANN001, ANN201
    return least(values) < bound and max(values[0], values[1], 2) > 2


@lean
def above(values):  # noqa: ANN001, ANN201
    return max(values[0], values[1], 2) + least(values)


@numba.njit
def both(values):  # noqa: ANN001, ANN201
    """Numba's own decorator and no cache: the parts are always compiled."""
    return within(values), above(values), within(values, 1)


def test_a_part_has_no_machine_code_and_answers_inside_others() -> None:
    """`within` and `above` share what they call, of this module and of Numba's: each is there once, after all that call it."""
    values = np.array([5, 2, 9])
    assert both(values) == (True, 7, False)
    for part in (within, above, least):
        assert isinstance(part, Part) and len(part.overloads) > 0
        assert not any(callable(found.entry_point) for found in part.overloads.values())
        assert "whole" not in part.__dict__, "nor was it made for Python"


def test_python_may_call_a_part() -> None:
    values = np.array([5.0, 2.0])
    assert above(values) == 7.0 and within(values) and not within(values, bound=1)
    asked = []
    above._compile_for_args = lambda *arguments: asked.append(arguments)
    assert above(values + 1) == 9.0 and not asked, "the second call of the same types finds the function by itself"


def test_python_may_call_a_part_with_several_types() -> None:
    """What was given for one type is not given again for the next: every call would be taken for one of types not met."""
    several = [np.array([5, 2], dtype) for dtype in (np.int64, np.float64, np.int32)]
    assert [least(values) for values in several] == [2, 2, 2]
    asked = []
    least._compile_for_args = lambda *arguments: asked.append(arguments)
    assert [least(values) for values in several] == [2, 2, 2] and not asked


@lean
def of_a_gpu(row, ints, floats, terms):  # noqa: ANN001, ANN201
    return 1.0


@lean
def of_a_cpu(row, ints, floats, terms, tiles, space):  # noqa: ANN001, ANN201
    return 2.0


@pytest.mark.parametrize(("machine", "own", "other"), [("h200", of_a_gpu, of_a_cpu), ("cascade_lake", of_a_cpu, of_a_gpu)])
def test_only_the_machines_own_model_is_compiled(machine: str, own: Part, other: Part) -> None:
    """The text of `model.latency` over two models that take no time to compile."""
    scope = {"latency_gpu": of_a_gpu, "latency_cpu": of_a_cpu}
    latency = numba.njit(FunctionType(model.latency.py_func.__code__, scope))
    ints, before = graph_of("gemm(m=4, n=16, k=4)", machine, "compact").tables.ints, len(other.overloads)
    nothing = np.zeros(1)
    assert latency(nothing, ints, nothing, nothing, nothing, model.room(ints)) == (1.0 if own is of_a_gpu else 2.0)
    assert own.overloads and len(other.overloads) == before


def test_another_release_of_numba_compiles_as_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.numba, "__version__", "0.99.1")

    @lean
    def doubled(value):  # noqa: ANN001, ANN202
        return 2 * value

    @numba.njit
    def outer(value):  # noqa: ANN001, ANN202
        return doubled(value) + 1

    assert not isinstance(doubled, Part) and outer(3) == 7 and doubled(4) == 8
    assert is_tried("0.68.1") and not is_tried("0.6") and not is_tried("0.68rc1")
