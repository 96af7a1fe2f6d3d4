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
from gensor_gym.codegen.runtime.arrays import CopyWarning
from gensor_gym.codegen.runtime.cuda import CudaUnavailableError, load
from tests.support import networks_cupy
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
    module.RawModule, module.asarray, module.empty, module.asnumpy = raw_module, on_device, empty, np.array
    module.ndarray, module.from_dlpack, module.may_share_memory = OnDevice, on_device, np.may_share_memory
    return module


class OnDevice(networks_cupy.Array):
    """An array that says it lies on GPU 0, or on another."""

    number = 0
    device = property(lambda self: SimpleNamespace(id=self.number))


def on_device(array: np.ndarray) -> np.ndarray:
    """The array as the stand-in's own."""
    return np.asarray(array).view(OnDevice)


def empty(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """The stand-in's `empty`."""
    return np.empty(shape, dtype).view(OnDevice)


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


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> cuda_load.CudaKernel:
    """The kernel on the stand-in."""
    if not nvrtc.is_available():
        pytest.skip(f"NVRTC is not installed: {nvrtc.PACKAGES}")
    monkeypatch.setitem(sys.modules, "cupy", stand_in([]))
    return load(KERNEL)


def test_arrays_of_the_device_are_read_where_they_lie(loaded: cuda_load.CudaKernel) -> None:
    """The output lies there too; with one array of the host that one is copied."""
    given = [on_device(array) for array in random_inputs(OP, np.random.default_rng(0))]
    assert all(np.may_share_memory(a, b) for a, b in zip(loaded.arrays.inputs(given), given, strict=True))
    assert isinstance(loaded(*given), OnDevice)
    assert isinstance(loaded(np.array(given[0]), given[1]), OnDevice)
    assert type(loaded(*map(np.array, given))) is np.ndarray


def test_an_own_output_is_filled_in_where_it_lies(loaded: cuda_load.CudaKernel) -> None:
    """On the device by the kernel, on the host after it; never over an input."""
    host = random_inputs(OP, np.random.default_rng(0))
    given = [on_device(array) for array in host]
    for inputs, out in ((given, empty((128, 128), "float32")), (host, np.zeros((128, 128), np.float32))):
        assert loaded(*inputs, out=out) is out and (out == 1).all()
    wide = empty((128, 192), "float32").reshape(-1)
    with pytest.raises(ValueError, match="out overlaps input A"):
        loaded(wide[: 128 * 64].reshape(128, 64), given[1], out=wide[64 : 64 + 128 * 128].reshape(128, 128))


def test_arrays_of_another_gpu_are_refused(loaded: cuda_load.CudaKernel) -> None:
    """By its number."""
    a, b = random_inputs(OP, np.random.default_rng(0))

    class Foreign:
        """An array of another library on GPU 1."""

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 1

    with pytest.raises(ValueError, match="input B lies on GPU 1, this kernel is on GPU 0"):
        loaded(on_device(a), Foreign())
    theirs = on_device(b)
    theirs.number = 1
    with pytest.raises(ValueError, match="input B lies on GPU 1, this kernel is on GPU 0"):
        loaded(on_device(a), theirs)


def test_another_current_device_is_refused(loaded: cuda_load.CudaKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the output would be made on that one."""
    monkeypatch.setattr(sys.modules["cupy"].cuda, "Device", lambda: SimpleNamespace(id=1))
    with pytest.raises(ValueError, match="GPU 1 is the current device, this kernel is on GPU 0"):
        loaded(*map(on_device, random_inputs(OP, np.random.default_rng(0))))


class OnlyInterface:
    """An array of the device that has `__cuda_array_interface__` alone, as Numba's had."""

    def __init__(self, array: np.ndarray) -> None:
        """Of these elements."""
        self.array = array

    @property
    def __cuda_array_interface__(self) -> dict:
        """As the stand-in reads it."""
        return {"data": (self.array.ctypes.data, False)}

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        """What the stand-in's `asarray` takes."""
        return self.array


def test_an_array_with_the_interface_alone_is_read(loaded: cuda_load.CudaKernel) -> None:
    """Where it lies."""
    a, b = random_inputs(OP, np.random.default_rng(0))
    assert np.may_share_memory(loaded.arrays.inputs([OnlyInterface(a), on_device(b)])[0], a)


def test_a_view_that_begins_between_vectors_is_copied(loaded: cuda_load.CudaKernel) -> None:
    """It is dense, but a load of 16 bytes would fault."""
    a, b = random_inputs(OP, np.random.default_rng(0))
    shifted = empty((a.size + 1,), "float32")[1:].reshape(a.shape)
    shifted[...] = a
    with pytest.warns(CopyWarning, match="input A is misaligned"):
        assert isinstance(loaded(shifted, on_device(b)), OnDevice)
    with pytest.raises(ValueError, match="a bound call copies nothing"):
        loaded.bind(shifted, on_device(b))
    out = empty((128 * 128 + 1,), "float32")[1:].reshape(128, 128)
    with pytest.raises(ValueError, match="out is not dense .*, or begins at no multiple of 16 bytes"):
        loaded(on_device(a), on_device(b), out=out)


def test_a_bound_launch_checks_nothing_and_copies_nothing(loaded: cuda_load.CudaKernel) -> None:
    """Of arrays of the device alone."""
    host = random_inputs(OP, np.random.default_rng(0))
    given = [on_device(array) for array in host]
    out = empty((128, 128), "float32")
    out[:] = 0
    call = loaded.bind(*given, out)
    assert call() is out and (out == 1).all()
    assert isinstance(loaded.bind(*given)(), OnDevice)
    with pytest.raises(ValueError, match="input A lies on the host"):
        loaded.bind(host[0], given[1])
    with pytest.raises(ValueError, match="input A is not dense"):
        loaded.bind(np.asfortranarray(host[0]).view(OnDevice), given[1])


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
        ("sm_86", "89", True), ("sm_89", "86", False), ("sm_90a", "90", True), ("sm_100a", "103", False),
        ("sm_100", "120", False), ("sm_75", "80", False),
    ],  # fmt: skip
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
