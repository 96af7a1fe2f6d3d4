"""Loading CUDA kernels: what is said without CuPy or a device, and the calls that CuPy gets, on a stand-in for it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime import cuda as cuda_load
from gensor_gym.codegen.runtime.cuda import CudaUnavailableError, load
from tests.support.cuda_schedules import make_kernel, make_schedule, random_inputs

OP = operators.gemm(128, 128, 64)
KERNEL = make_kernel(OP, make_schedule(OP, [8, 8, 1], [128, 128, 64], split_k=2))


class RefusedError(Exception):
    """The stand-in's CUDA error."""


class Function:
    """An entry of the stand-in: keeps the launches it gets, and writes 1 to the output."""

    def __init__(self, entry: str, calls: list[tuple]) -> None:
        """Named, writing to `calls`."""
        self.entry, self.calls = entry, calls
        self.num_regs = 1
        self.max_dynamic_shared_size_bytes = 48 * 1024

    def __call__(self, grid: tuple, block: tuple, arguments: tuple, shared_mem: int) -> None:
        """A launch."""
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        self.calls.append((self.entry, grid, block, shared_mem, [a.shape for a in arguments]))
        arguments[-2][:] = 1


def stand_in(calls: list[tuple], capability: str = "90", devices: int = 1) -> ModuleType:
    """A module with the parts of CuPy that loading uses, on NumPy arrays."""

    def raw_module(path: str) -> SimpleNamespace:
        assert Path(path).read_bytes()[:4] == b"\x7fELF"
        functions = {launch.entry: Function(launch.entry, calls) for launch in KERNEL.launches}
        return SimpleNamespace(get_function=functions.__getitem__)

    def count() -> int:
        if devices < 0:
            raise RefusedError("cudaErrorInsufficientDriver")
        return devices

    runtime = SimpleNamespace(getDeviceCount=count, CUDARuntimeError=RefusedError)
    device = SimpleNamespace(id=0, compute_capability=capability)
    module = ModuleType("cupy")
    module.cuda = SimpleNamespace(runtime=runtime, Device=lambda: device)
    module.RawModule, module.asarray, module.empty, module.asnumpy = raw_module, np.asarray, np.empty, np.array
    return module


@pytest.fixture(autouse=True)
def _nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test loads anew."""
    monkeypatch.setattr(cuda_load, "_LOADED", {})


@pytest.mark.skipif(not nvrtc.is_available(), reason=f"NVRTC is not installed: {nvrtc.PACKAGES}")
def test_launches_follow_one_another_with_their_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both launches of a split reduction, the first with more shared memory than needs no permission."""
    calls: list[tuple] = []
    monkeypatch.setitem(sys.modules, "cupy", stand_in(calls))
    out = load(KERNEL)(*random_inputs(OP, np.random.default_rng(0)))
    assert out.shape == (128, 128)
    assert (out == 1).all()
    shapes = [(128, 64), (64, 128), (128, 128), (2 * 128 * 128,)]
    assert calls == [
        ("gg_gemm", (2, 1, 1), (256, 1, 1), 65536, shapes),
        ("gg_gemm_finish", (64, 1, 1), (256, 1, 1), 0, shapes),
    ]
    assert load(KERNEL) is load(KERNEL)


@pytest.mark.skipif(not nvrtc.is_available(), reason=f"NVRTC is not installed: {nvrtc.PACKAGES}")
def test_inputs_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong shape never reaches the device."""
    monkeypatch.setitem(sys.modules, "cupy", stand_in([]))
    a, b = random_inputs(OP, np.random.default_rng(0))
    with pytest.raises(ValueError, match="input B is float64"):
        load(KERNEL)(a, b.astype(np.float64))


def test_without_cupy_the_error_names_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package to install, and the backends that need no GPU."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(CudaUnavailableError, match="cupy-cuda13x.*analytic, recorded or emulated"):
        load(KERNEL)


@pytest.mark.parametrize(
    ("devices", "capability", "words"),
    [(-1, "90", "InsufficientDriver"), (0, "90", "no CUDA device"), (1, "80", "for sm_90, the device is sm_80")],
)
def test_without_the_device_the_error_names_what_works(
    monkeypatch: pytest.MonkeyPatch, devices: int, capability: str, words: str
) -> None:
    """No driver, no device, another architecture."""
    monkeypatch.setitem(sys.modules, "cupy", stand_in([], capability, devices))
    with pytest.raises(CudaUnavailableError, match=f"{words}.*analytic, recorded or emulated"):
        load(KERNEL)


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [
        ("sm_86", "89", True),
        ("sm_89", "86", False),
        ("sm_90a", "90", True),
        ("sm_100a", "103", False),
        ("sm_100", "120", False),
        ("sm_75", "80", False),
    ],
)
def test_a_cubin_runs_on_its_major_version_from_its_minor_on(arch: str, capability: str, runs: bool) -> None:
    """The rule of binary compatibility."""
    if runs:
        cuda_load._check_arch(arch, capability)
        return
    with pytest.raises(CudaUnavailableError, match=arch):
        cuda_load._check_arch(arch, capability)


@pytest.mark.cuda
def test_a_kernel_runs_on_the_device() -> None:
    """The reference's output, from the real thing."""
    import cupy

    arch = f"sm_{cupy.cuda.Device().compute_capability}"
    kernel: Kernel = replace(KERNEL, arch=arch)
    inputs = random_inputs(OP, np.random.default_rng(0))
    np.testing.assert_allclose(load(kernel)(*inputs), OP.reference(*inputs), rtol=1e-4, atol=1e-4)
