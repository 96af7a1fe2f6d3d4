"""Targets: which machine has which, what unknown ones are told, and that kernels go to the target of their language."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen import build, generate, targets
from gensor_gym.codegen.build import BuiltKernel
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.codegen.runtime.compile import compile_c
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.backend import BACKENDS, get_backend
from gensor_gym.measure.devices.opened import DEVICES, opened_by
from gensor_gym.measure.emulator.emulator import EmulatedKernels
from gensor_gym.measure.runners import RUNNERS, runner_of
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
