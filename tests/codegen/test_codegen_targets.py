"""Targets, bodies and workspaces of generated kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import codegen, hardware, operators
from gensor_gym.codegen import build, generate, targets
from gensor_gym.codegen.build import BuiltKernel
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.codegen.runtime.compile import compile_c
from gensor_gym.codegen.runtime.memory import workspace_of
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.backend import BACKENDS, get_backend
from gensor_gym.measure.devices.opened import DEVICES, opened_by
from gensor_gym.measure.emulator.emulator import EmulatedKernels
from gensor_gym.measure.runners import RUNNERS, runner_of
from gensor_gym.operators.bodies import BODIES, OBSERVED, Body
from gensor_gym.operators.types import Operator
from tests.support.cuda_schedules import make_schedule

OP = operators.gemm(4, 4, 4)


def kernel(language: str) -> Kernel:
    """A kernel in a language, of no use."""
    return Kernel(OP, language, "none", "", (Launch("entry"),), 0)


def test_every_machine_has_one_target() -> None:
    machines = [hardware.get(name) for name in hardware.names()]
    for hw in machines:
        assert [target.accepts(hw) for target in targets.TARGETS.values()].count(True) == 1, hw.name
    found = {hw.name: targets.target_of(hw).name for hw in machines}
    assert found["host"] == found["cascade_lake"] == "c"
    assert {found[name] for name in ("h200", "t4", "v100")} == {"cuda"}
    assert [name for name, target in found.items() if target == "hip"] == ["mi300x"]
    assert all(targets.target_of(hw).threads(hw) == (hw.units if hw.kind == "cpu" else 1) for hw in machines)


def test_an_unknown_target_is_a_clear_error() -> None:
    """A GPU of a maker nobody writes kernels for, a kernel in a language nobody has."""
    strange = replace(hardware.get("h200"), name="strange", arch="xe_hpc")
    words = "no target writes kernels for strange, a gpu of architecture 'xe_hpc'; there are c, cuda, hip"
    schedule = make_schedule(OP, [1, 1, 1], [4, 4, 4])
    for ask in (targets.target_of, runner_of, lambda hw: generate(OP, schedule, hw)):
        with pytest.raises(ValueError, match=words):
            ask(strange)
    for name in ("auto", "cuda", "emulated"):
        with pytest.raises(ValueError, match=words):
            get_backend(name, strange)
    assert get_backend("analytic", strange).name == "analytic"
    with pytest.raises(ValueError, match="no target 'metal'; accepted: c, cuda, hip"):
        targets.get("metal")
    with pytest.raises(ValueError, match="no target 'metal'"):
        BuiltKernel(OP, "metal", "none", "", (Launch("entry"),), 0)()
    with pytest.raises(ValueError, match="no device 'tpu'; accepted: cpu, cuda"):
        opened_by("tpu")


def test_kernels_of_other_languages_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a kernel in language 'c', got one in 'cuda'"):
        compile_c(kernel("cuda"))
    with pytest.raises(ValueError, match="one target of GPUs at a time, not of language 'c'"):
        EmulatedKernels([kernel("c")])
    with pytest.raises(ValueError, match="not of language 'cuda', 'hip'"):
        EmulatedKernels([kernel("cuda"), kernel("hip")])


def test_a_target_of_ones_own_is_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generated and loaded by what was registered, under its own name."""

    class Reference(targets.Target):
        name = "reference"

        def accepts(self, hw: hardware.Hardware) -> bool:
            return hw.arch == "paper"

        def generate(self, program: object) -> Kernel:
            return Kernel(OP, self.name, "paper", str(program), (Launch("entry"),), 0)

        def prepare(self, kernel: Kernel) -> None:
            assert kernel.language == self.name

        def load(self, kernel: Kernel) -> object:
            return kernel.operator.reference

    monkeypatch.setitem(targets.TARGETS, "reference", Reference())
    paper = replace(hardware.get("cascade_lake"), kind="gpu", name="paper", arch="paper")
    assert targets.target_of(paper).name == "reference"
    a = np.eye(4, dtype=np.float32)
    assert (BuiltKernel(OP, "reference", "paper", "", (Launch("entry"),), 0)(a, a) == a).all()
    with pytest.raises(ValueError, match="nothing loads and times reference kernels yet"):
        runner_of(paper)


def test_what_is_built_is_plain_data_that_can_be_called() -> None:
    host = hardware.get("host")
    schedule = ConstructionGraph(OP, host).random_schedule(np.random.default_rng(0))
    built, plain = build(OP, schedule, host), generate(OP, schedule, host)
    assert isinstance(built, Kernel) and built.digest == plain.digest and not callable(plain)
    a, b = (np.random.default_rng(i).standard_normal((4, 4)).astype(np.float32) for i in (1, 2))
    np.testing.assert_allclose(built(a, b), a @ b, rtol=1e-5, atol=1e-5)


def test_every_runner_is_a_backend_by_its_name() -> None:
    assert set(RUNNERS) <= set(targets.TARGETS)
    assert all(runner.name in BACKENDS for runner in RUNNERS.values())
    assert {runner.name for runner in RUNNERS.values()} == set(DEVICES)


APART = Body("({0} - {1}) * ({0} - {1})", lambda a, b: np.square(a - b), 3)


@pytest.fixture
def ops(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Operator]]:
    """Squared distances of rows and columns, of bytes, and of windows, whose padding is not left out."""
    monkeypatch.setitem(BODIES, "squared_difference", APART)
    bases = [
        operators.gemm(9, 21, 33),
        operators.gemm(9, 21, 33, dtype="int8"),
        operators.depthwise_conv2d(1, 3, 12, 13, 3, 3, padding=1),
    ]
    yield [op.renamed(name="distances", body="squared_difference") for op in bases]


def expected(op: Operator, inputs: list[np.ndarray]) -> np.ndarray:
    """By the definition, without the table."""
    first, second = (x.astype(np.float64) for x in inputs)
    if first.ndim == 2:
        return np.square(first[:, :, None] - second[None]).sum(axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(first, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
    return np.square(windows - second.reshape(1, 3, 1, 1, 3, 3)).sum(axis=(4, 5))


def test_a_body_of_the_table_alone_is_right_in_both_languages(ops: list[Operator]) -> None:
    rng = np.random.default_rng(7)
    kernels, cases = [], []
    for op in ops:
        inputs = list(operators.random_inputs(op, rng))
        answer = expected(op, inputs)
        np.testing.assert_allclose(op.reference(*inputs), answer, rtol=1e-12)
        cpu, gpu = (ConstructionGraph(op, name, space="extended") for name in ("zen5_1c", "h200"))
        out = build(op, cpu.random_schedule(rng), "zen5_1c")(*inputs)
        np.testing.assert_allclose(out, answer, rtol=2e-5, atol=2e-5)
        kernels.append(generate(op, gpu.random_schedule(rng), "h200"))
        cases.append((inputs, answer))
    with EmulatedKernels(kernels) as program:
        for number, (inputs, answer) in enumerate(cases):
            np.testing.assert_allclose(program.run(number, inputs), answer, rtol=2e-5, atol=2e-5)
    assert ops[0].flops == 3 * ops[0].points


def test_places_of_bodies_stay() -> None:
    """Tables of tasks and features of learned models hold them."""
    assert tuple(BODIES)[: len(OBSERVED)] == OBSERVED


OPERATOR = "conv2d(n=1, c=24, h=19, w=19, k=24, r=3, s=3, padding=2, dilation=2)"


def shifted() -> BuiltKernel:
    """A shifted product, part of whose workspace is read and never written."""
    graph, rng = ConstructionGraph(OPERATOR, "host", "extended"), np.random.default_rng(0)
    drawn = (graph.random_schedule(rng) for _ in range(2000))
    chosen = (s for s in drawn if s.knob("convolution") == 2 and s.knob("pack_a") == 1 and s.knob("pack_b") == 0)
    return codegen.build(OPERATOR, next(chosen), "host")


def recycled(size: int) -> None:
    """Leave memory of that size behind that is full of denormal numbers, for the next who asks for as much."""
    dirty = [np.full(size // 4, 1, np.int32) for _ in range(8)]
    del dirty


def test_a_workspace_is_zero_whatever_its_memory_held() -> None:
    for size in (64, 1000, 100_000):
        recycled(size + 64)
        space = workspace_of(size)
        assert space.nbytes == size and space.ctypes.data % 64 == 0 and not space.any()


def test_what_a_kernel_does_not_write_stays_zero() -> None:
    """Called and bound: no word of the workspace is a denormal number after a call."""
    kernel = shifted().loaded
    inputs = operators.random_inputs(kernel.kernel.operator, np.random.default_rng(0))
    recycled(kernel.kernel.workspace_bytes + 64)
    kernel(*inputs)
    bound = kernel.bind(*inputs)
    bound()
    for space in (kernel._builtin.workspaces[0], bound._kept[2]):
        words = space[: space.size // 4 * 4].view(np.float32)
        small = (words != 0) & (np.abs(words) < np.finfo(np.float32).tiny)
        assert words.any() and not small.any()
