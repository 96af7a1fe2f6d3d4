"""Fused kernels as whoever optimizes calls them: arrays of several libraries, several outputs, threads, torch's operators."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
from collections.abc import Sequence
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from gensor_gym.codegen import build
from gensor_gym.codegen.build import BuiltKernel
from gensor_gym.codegen.export import export
from gensor_gym.codegen.runtime.arrays import CopyWarning, Signature
from gensor_gym.codegen.runtime.memory import ALIGNMENT, address_of
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.suite import make
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.measure.answers.fused import FusedDraw, fused_draws
from gensor_gym.measure.records.verified import fault_of
from tests.support.called_kernel import MORE_THAN_KEPT, in_threads
from tests.support.gir_cases import machine
from tests.support.resident import resident

SCHEDULE = "vector=8 tile=2 rows=2 loop=1 place=sram,sram"
TWO, ONE = make("add_layernorm", m=9, n=37), make("softmax", m=9, n=37)


@pytest.fixture(scope="module")
def two() -> BuiltKernel:
    """Of two outputs, with buffers."""
    return build(TWO, GirSchedule.parse(SCHEDULE), machine())


@pytest.fixture(scope="module")
def one() -> BuiltKernel:
    """Of one output, with buffers."""
    return build(ONE, GirSchedule.parse(SCHEDULE), machine())


@pytest.fixture
def draw() -> FusedDraw:
    return fused_draws(TWO, 1)[0]


def empty() -> tuple[np.ndarray, np.ndarray]:
    return np.full((9, 37), np.nan, np.float32), np.full((9, 37), np.nan, np.float32)


def test_several_outputs_are_a_tuple(two: BuiltKernel, draw: FusedDraw) -> None:
    found = two(*draw.inputs)
    assert isinstance(found, tuple) and [array.shape for array in found] == [(9, 37)] * 2 and draw.fault(found) == ""
    again = two(*draw.inputs)
    assert not any(
        np.may_share_memory(a, b) for a in found for b in (*again, *draw.inputs, found[0] if a is found[1] else again[0])
    )


def test_one_output_is_an_array(one: BuiltKernel) -> None:
    draw = fused_draws(ONE, 1)[0]
    found = one(*draw.inputs)
    assert isinstance(found, np.ndarray) and draw.fault(found) == ""
    own = np.empty_like(found)
    assert one(*draw.inputs, out=own) is own and np.array_equal(own, found)
    bound = one.bind(*draw.inputs, np.zeros_like(own))
    assert draw.fault(bound()) == ""


def places(found: Sequence[Any]) -> list[int]:
    """Where outputs lie."""
    return [address_of(np.asarray(one)) for one in found]


def test_memory_of_each_output_is_used_again_when_nothing_refers_to_it(two: BuiltKernel, draw: FusedDraw) -> None:
    s, y = two(*draw.inputs)
    first, held = places((s, y)), y[1:].T
    before = held.copy()
    del s, y
    later = [two(*draw.inputs) for _ in range(MORE_THAN_KEPT)]
    assert first[1] not in [place for found in later for place in places(found)]
    assert first[0] in places(one for one, _ in later) and np.array_equal(held, before)
    assert len({place for found in later for place in places(found)}) == 2 * MORE_THAN_KEPT
    del held, later
    again = places(two(*draw.inputs))
    assert all(places(two(*draw.inputs)) == again for _ in range(5)) and again[0] % ALIGNMENT == again[1] % ALIGNMENT == 0


def test_nothing_leaks(two: BuiltKernel, draw: FusedDraw) -> None:
    own = empty()
    for call in (lambda: two(*draw.inputs), lambda: two(*draw.inputs, out=own), two.bind(*draw.inputs)):
        for calls in (5_000, 20_000):
            before = resident()
            for _ in range(calls):
                call()
        assert resident() - before < 1 << 20


@pytest.mark.parametrize("kind", [tuple, list])
def test_own_outputs_are_filled_in(kind: type, two: BuiltKernel, draw: FusedDraw) -> None:
    own = kind(empty())
    found = two(*draw.inputs, out=own)
    assert all(a is b for a, b in zip(found, own, strict=True)) and draw.fault(own) == ""


def refused(two: BuiltKernel, inputs: Sequence[Any], out: Any = None) -> str:
    """What is said."""
    with pytest.raises(ValueError) as error:
        two(*inputs, out=out)
    assert str(error.value).startswith("add_layernorm(m=9, n=37): ")
    return str(error.value).removeprefix("add_layernorm(m=9, n=37): ")


def test_wrong_arrays_are_refused(two: BuiltKernel, draw: FusedDraw) -> None:
    x, r, gamma, beta = draw.inputs
    s, y = empty()
    both = np.empty((10, 37), np.float32)
    assert refused(two, (x, r, gamma)).startswith("3 arrays given, expected 4: x[9, 37], r[9, 37], gamma[37], beta[37]")
    assert refused(two, (x, r, gamma), (beta, s, y)).startswith("3 arrays given, expected 4")
    assert refused(two, (*draw.inputs, s, y)).startswith("6 arrays given, expected 4")
    assert refused(two, draw.inputs, ()) == "out is tuple of 0, expected a tuple of 2 arrays"
    assert refused(two, (x, r, beta[:5], beta)) == "input gamma is float32[5], expected float32[37]"
    assert refused(two, (x, r.astype(np.float64), gamma, beta)) == "input r is float64[9, 37], expected float32[9, 37]"
    assert refused(two, draw.inputs, (s,)) == "out is tuple of 1, expected a tuple of 2 arrays"
    assert refused(two, draw.inputs, (s, y, s)) == "out is tuple of 3, expected a tuple of 2 arrays"
    assert refused(two, draw.inputs, s) == "out is ndarray, expected a tuple of 2 arrays"
    assert refused(two, draw.inputs, (s, s)) == "outputs overlap, expected memory of its own for each"
    assert refused(two, draw.inputs, (both[:9], both[1:])) == "outputs overlap, expected memory of its own for each"
    assert refused(two, draw.inputs, (x, y)) == "out overlaps input x, expected memory of its own"
    assert refused(two, draw.inputs, (s, r)) == "out overlaps input r, expected memory of its own"
    assert "out is float32[37], expected float32[9, 37]" in refused(two, draw.inputs, (s, gamma))
    assert "dense in row-major order" in refused(two, draw.inputs, (s, np.empty((37, 9), np.float32).T))
    s.setflags(write=False)
    assert "out is read-only" in refused(two, draw.inputs, (s, y))


def test_an_input_that_is_not_dense_is_copied_and_said(two: BuiltKernel, draw: FusedDraw) -> None:
    x, *rest = draw.inputs
    with pytest.warns(CopyWarning, match="input x is not dense"):
        found = two(np.asfortranarray(x), *rest)
    assert draw.fault(found) == ""
    with pytest.raises(ValueError, match="a bound call copies nothing"):
        two.bind(np.asfortranarray(x), *rest)


def test_a_bound_call_reads_what_arrays_hold_then(two: BuiltKernel, draw: FusedDraw) -> None:
    inputs, own = [array.copy() for array in draw.inputs], empty()
    call = two.bind(*inputs, *own)
    assert all(a is b for a, b in zip(call(), own, strict=True)) and draw.fault(own) == ""
    inputs[0] += 1
    call()
    assert FusedDraw(tuple(inputs), evaluate(TWO, inputs)).fault(own) == ""
    free = two.bind(*inputs)
    assert free() is free.out and FusedDraw(tuple(inputs), evaluate(TWO, inputs)).fault(free.out) == ""
    with pytest.raises(ValueError, match="expected a tuple of 2 arrays"):
        two.bind(*inputs, own[0])
    with pytest.raises(ValueError, match="expected a tuple of 2 arrays"):
        two.bind(*inputs, *own, own[0])


def test_threads_call_at_once(two: BuiltKernel) -> None:
    """Each with its own inputs, workspace and outputs, while the pool may be busy."""
    draws, start = [fused_draws(TWO, seed)[0] for seed in range(4)], Barrier(4)

    def many(number: int) -> None:
        start.wait()
        assert {draws[number].fault(two(*draws[number].inputs)) for _ in range(100)} == {""}

    in_threads(many, 4)


def test_a_kernel_travels(two: BuiltKernel, draw: FusedDraw) -> None:
    other = pickle.loads(pickle.dumps(two))
    assert other == two and other.digest == two.digest and draw.fault(other(*draw.inputs)) == ""
    assert fault_of(two) == ""
    wrong = two.source.replace(" + 1e-05f", "")
    values = {field.name: getattr(two, field.name) for field in dataclasses.fields(two)}
    assert "elements wrong" in fault_of(BuiltKernel(**{**values, "source": wrong}))


def test_illegal_schedules_and_those_of_others_are_not_built() -> None:
    with pytest.raises(ValueError, match=r"not a legal schedule of softmax\(m=9, n=37\) on cascade_lake: row \[3, 3"):
        build(ONE, GirSchedule.parse("vector=16 tile=8"), machine())
    with pytest.raises(ValueError, match="expected a GirSchedule for softmax"):
        build(ONE, "vector=1", machine())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected a Schedule for gemm"):
        build("gemm(m=4, n=4, k=4)", GirSchedule.parse(""), machine())


def test_exported_kernels_answer_from_c_as_from_python(one: BuiltKernel, two: BuiltKernel, tmp_path: Path) -> None:
    made = export([one, two], tmp_path / "kernels", 1)
    build_example = "cc example.c -o example -L. -lgensor_kernels -Wl,-rpath,'$ORIGIN' && ./example"
    said = subprocess.run(build_example, shell=True, cwd=made.folder, capture_output=True, text=True, check=True).stdout
    sums = [float(line.split()[1]) for line in said.splitlines()]
    for kernel, total in zip((one, two), sums, strict=True):
        inputs = [  # what the example fills in
            ((np.arange(tensor.size) * (2 * place + 3)) % 7 - 3).astype(np.float32).reshape(tensor.shape)
            for place, tensor in enumerate(kernel.operator.inputs)
        ]
        found = kernel(*inputs)
        outputs = found if isinstance(found, tuple) else (found,)
        weighted = sum(float(((np.arange(o.size) % 5 + 1) * o.ravel().astype(np.float64)).sum()) for o in outputs)
        assert total == pytest.approx(weighted, rel=1e-12)


def test_names_that_c_has_other_uses_for_are_exported(tmp_path: Path) -> None:
    given = ", ".join(f"{name}: float32[2, 5]" for name in ("int", "inputs", "workspace", "NULL", "new", "kept"))
    text = f"def f({given}):\n    outputs = int + inputs * workspace - NULL * new + kept\n    return outputs\n"
    kernel = build(text, GirSchedule.parse("vector=4"), machine())
    made = export([kernel], tmp_path / "kernels", 1)
    assert "const float *int_, const float *inputs_, " in (made.folder / "gensor_kernels.h").read_text()


class TestTorch:
    """Tensors in and out, and the operator within compiled code."""

    torch = pytest.importorskip("torch")

    def tensors(self, draw: FusedDraw) -> list[Any]:
        return [self.torch.from_numpy(array.copy()) for array in draw.inputs]

    def test_tensors_in_and_out(self, two: BuiltKernel, draw: FusedDraw, monkeypatch: pytest.MonkeyPatch) -> None:
        tensors = self.tensors(draw)
        found = two(*tensors)
        assert all(isinstance(one, self.torch.Tensor) for one in found) and draw.fault([one.numpy() for one in found]) == ""
        own = tuple(self.torch.empty(9, 37) for _ in range(2))
        assert two(*tensors, out=own)[0] is own[0] and draw.fault([one.numpy() for one in own]) == ""
        with monkeypatch.context() as patched:
            patched.setattr(Signature, "read", None)  # Python looks at no tensor any more
            s, y = two(*tensors)
            where, held = s.data_ptr(), s[2:].T
            del s
            later = [two(*tensors) for _ in range(MORE_THAN_KEPT)]
            assert two(*tensors, out=list(own)) == list(own)
        assert where not in [one.data_ptr() for one, _ in later] and held.data_ptr() > where
        assert draw.fault([one.numpy() for one in later[-1]]) == ""
        assert "outputs overlap" in refused(two, tensors, (own[0], own[0][:]))
        assert "cannot be read where it lies" in refused(two, [tensors[0].requires_grad_(), *tensors[1:]])

    @pytest.mark.thorough
    def test_it_is_an_operator(self, two: BuiltKernel, one: BuiltKernel, draw: FusedDraw) -> None:
        for kernel, inputs in ((two, draw.inputs), (one, draw.inputs[:1])):
            tensors = [self.torch.from_numpy(array) for array in inputs]
            self.torch.library.opcheck(kernel.as_torch(), tensors)
            assert kernel.as_torch() is kernel.as_torch()

    def test_two_outputs_compile_without_a_break(self, two: BuiltKernel, draw: FusedDraw) -> None:
        made = two.as_torch()

        def layer(*tensors: Any) -> Any:
            s, y = made(tensors[0] * 1.0, *tensors[1:])
            return s * 2, y + 1

        compiled = self.torch.compile(layer, fullgraph=True, backend="aot_eager")
        s, y = compiled(*self.tensors(draw))
        found = [s.numpy() / 2, y.numpy() - 1]
        assert all(np.allclose(a, b.value, atol=1e-5) for a, b in zip(found, draw.outputs, strict=True))
