"""Kernels of all families as dependent ones: they wait before they touch memory, and cost no registers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.chains.gpu.schedule import GpuChainSchedule
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.cuda import sass
from gensor_gym.codegen.cuda.dependent import LaunchError, dependent, launch_dependent
from gensor_gym.codegen.cuda.nvrtc import compile_cubin
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.measure.answers.expectation import make_draws
from gensor_gym.measure.answers.fused import fused_draws
from gensor_gym.measure.emulator.emulator import EmulatedKernels, EmulatorError
from gensor_gym.operators.types import Operator
from tests.support.chain_gpu_cases import attention
from tests.support.cuda_schedules import make_kernel, make_schedule
from tests.support.gir_cases import of_suite, planted
from tests.support.gir_gpu_cases import gpu, random_kernel
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import needs_nvrtc, wgmma_kernel

SPLIT = operators.gemm(5, 8, 40)
MADE: dict[str, Callable[[], Kernel]] = {
    "row nest": lambda: random_kernel(of_suite("softmax", np.random.default_rng(0)), np.random.default_rng(0)),
    "two launches": lambda: make_kernel(SPLIT, make_schedule(SPLIT, [1, 2, 1], [4, 4, 4], split_k=2)),
    "wgmma": lambda: wgmma_kernel(operators.gemm(128, 128, 128, dtype="float16"), [64, 128], [64, 128], stages=2),
    "attention": lambda: generate(
        attention(40, 50, 24, 2, 2, 1, "causal"), GpuChainSchedule.parse("warps=2 keys=16 stages=2"), gpu()
    ),
    "attention, wgmma": lambda: generate(
        attention(77, 150, 64, mask="causal"), GpuChainSchedule.parse("warps=4 keys=64 stages=2 tensor=2"), gpu()
    ),
}  # fmt: skip
FAULTS = {
    "no wait": (r"  wait_for_grids\(\);\n", ""),
    "one thread waits": (r"wait_for_grids\(\);\n  start", "if (threadIdx.x == 0) wait_for_grids();\n  start"),
}
"""What is wrong -> pattern in a kernel's text, what is put in its place."""


def faults_of(kernels: dict[str, Kernel]) -> dict[str, str]:
    """Of the wrong kernels, what is wrong."""
    found = dict[str, str]()
    with EmulatedKernels(list(kernels.values())) as program:
        for number, (name, kernel) in enumerate(kernels.items()):
            op: Any = kernel.operator
            draw: Any = (make_draws if isinstance(op, Operator) else fused_draws)(op, 0)[0]
            try:
                fault = draw.fault(program.run(number, draw.inputs))
            except EmulatorError as error:
                fault = str(error)
            found |= {name: fault} if fault else {}
    return found


def test_kernels_wait_for_what_they_read_and_write() -> None:
    kernels = {name: dependent(make()) for name, make in MADE.items()}
    assert [kernel.source.count(" wait_for_grids();") for kernel in kernels.values()] == [2, 2, 1, 1, 1]
    wrong = {f"{fault}, {name}": planted(kernels[name], *FAULTS[fault]) for fault in FAULTS for name in ("row nest", "wgmma")}
    late = planted(kernels["row nest"], r"  wait_for_grids\(\);\n", "  if (false) return;\n")
    late = planted(late, r"\}\n$", "  wait_for_grids();\n}\n")
    wrong["waits at the end"] = late
    assert faults_of(kernels | wrong).keys() == wrong.keys()


@needs_nvrtc
@pytest.mark.skipif(not sass.is_available(), reason=f"no disassembler: pip install {sass.PACKAGE}")
@pytest.mark.parametrize("name", thorough_but(MADE, "two launches", "attention, wgmma"))
def test_the_instructions_take_no_registers(name: str) -> None:
    """In machine code the wait is ACQBULK, and comes before PREEXIT and before global memory."""
    kernel = MADE[name]()
    plain, made = (compile_cubin(one, "sm_90a") for one in (kernel, dependent(kernel)))
    assert made.registers <= plain.registers + 2 and made.spill_bytes == 0 and made.loss == plain.loss
    for lines in sass.instructions(sass.disassemble(made.cubin)).values():
        names = [line.partition(".")[0] for line in lines]
        touched = [place for place, found in enumerate(names) if found in ("LDG", "STG", "LDGSTS", "UTMALDG", "RED", "ATOMG")]
        assert names.index("ACQBULK") < names.index("PREEXIT") < min(touched)


class Driver(ModuleType):
    """The driver's bindings, which refuse or keep launches: shape, attribute, and the bytes of the arguments."""

    def __init__(self, real: Any, status: int = 0) -> None:
        super().__init__("driver")
        self.real, self.status, self.launches = real, status, list[Any]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def cuLaunchKernelEx(self, config: Any, function: int, places: int, extra: int) -> tuple[int]:  # noqa: N802
        pointers = ctypes.cast(places, ctypes.POINTER(ctypes.c_void_p))
        given = ctypes.string_at(pointers[0], 128), ctypes.cast(pointers[1], ctypes.POINTER(ctypes.c_uint64))[0]
        kinds = [(one.id.name, one.value.programmaticStreamSerializationAllowed) for one in config.attrs]
        shape = config.gridDimX, config.gridDimZ, config.blockDimX, config.sharedMemBytes, int(config.hStream)
        self.launches.append((function, shape, kinds, config.numAttrs, given))
        return (self.status,)


def test_launches_carry_the_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    real = pytest.importorskip("cuda.bindings.driver")
    driver = Driver(real)
    monkeypatch.setattr("gensor_gym.codegen.cuda.dependent.bindings", lambda: driver)
    made = np.arange(16, dtype=np.uint64).view([("opaque", np.uint64, (16,))])
    array = SimpleNamespace(data=SimpleNamespace(ptr=0x7000), itemsize=4)
    function, launch = SimpleNamespace(kernel=SimpleNamespace(ptr=99)), Launch("entry", (7, 1, 2), (128, 1, 1), 4096)
    launch_dependent(function, launch, (made, array), 5)
    attribute = ("CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION", 1)
    assert driver.launches == [(99, (7, 2, 128, 4096, 5), [attribute], 1, (made.tobytes(), 0x7000))]
    driver.status = 1
    with pytest.raises(LaunchError, match="cuLaunchKernelEx of entry: 1"):
        launch_dependent(function, launch, (made, array), 5)


def test_older_machines_are_refused() -> None:
    kernel = generate(attention(40, 50, 24), GpuChainSchedule.parse("warps=2 keys=16"), "a100")
    with pytest.raises(ValueError, match="for sm_80: dependent launches take a source text, and sm_90 or newer"):
        dependent(kernel)
