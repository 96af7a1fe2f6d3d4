"""A CUDA kernel as a function on NumPy arrays: the cubin of NVRTC, loaded and launched through CuPy.

The device must be the architecture that the kernel is for: a cubin of sm_90 runs on compute capability 9.x only, one of
sm_90a on 9.0 only.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from gensor_gym.codegen.cuda.nvrtc import compile_cubin
from gensor_gym.codegen.cuda.tensor_map import with_maps
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.arrays import Function, checked
from gensor_gym.operators.types import ARRAY_DTYPE

if TYPE_CHECKING:
    import cupy

OPT_IN_BYTES = 48 * 1024
"""Dynamic shared memory up to which a launch needs no permission."""

_ELSEWHERE = "without one, use backend analytic, recorded or emulated"
_LOADED: dict[tuple[str, int], LoadedKernel] = {}


class CudaUnavailableError(RuntimeError):
    """CuPy or a suitable device is missing; the message says which, and what works without."""


class LoadedKernel:
    """A kernel on the current device, called with the operator's arrays."""

    def __init__(self, kernel: Kernel, cupy: ModuleType) -> None:
        """Compile, load, and raise the shared memory limit where a launch needs it."""
        self.kernel = kernel
        self._cupy = cupy
        module = _load_module(kernel, cupy)
        self._functions = [module.get_function(launch.entry) for launch in kernel.launches]
        for function, launch in zip(self._functions, kernel.launches, strict=True):
            if launch.shared_bytes > OPT_IN_BYTES:
                function.max_dynamic_shared_size_bytes = launch.shared_bytes

    def __call__(self, *inputs: np.ndarray) -> np.ndarray:
        """The output for host arrays shaped and typed as the operator's inputs; TensorMapError where the driver refuses a map."""
        cupy, op = self._cupy, self.kernel.operator
        arrays = [cupy.asarray(array) for array in checked(self.kernel, inputs)]
        output = cupy.empty(op.output.shape, dtype=ARRAY_DTYPE[op.output.dtype])
        workspace = cupy.empty(-(-self.kernel.workspace_bytes // 4), dtype=np.float32)
        arguments = with_maps(self.kernel.maps, (*arrays, output, workspace))
        for function, launch in zip(self._functions, self.kernel.launches, strict=True):
            function(launch.grid, launch.block, arguments, shared_mem=launch.shared_bytes)
        return cupy.asnumpy(output)


def load(kernel: Kernel) -> Function:
    """The kernel as a function of host arrays that returns a new one. Loaded once per device and digest.

    CudaUnavailableError if CuPy or a device of the kernel's architecture is missing, NvrtcError if it does not compile.
    """
    cupy = _cupy()
    device = cupy.cuda.Device()
    _check_arch(kernel.arch, device.compute_capability)
    key = (kernel.digest, device.id)
    if key not in _LOADED:
        _LOADED[key] = LoadedKernel(kernel, cupy)
    return _LOADED[key]


def _cupy() -> ModuleType:
    """CuPy with a device behind it."""
    try:
        import cupy
    except ImportError as error:
        text = "CUDA kernels run through CuPy: pip install cupy-cuda13x (or cupy-cuda12x), with an NVIDIA GPU"
        raise CudaUnavailableError(f"{text}; {_ELSEWHERE}") from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise CudaUnavailableError(f"no CUDA device answers ({error}); {_ELSEWHERE}") from error
    if count == 0:
        raise CudaUnavailableError(f"this machine has no CUDA device; {_ELSEWHERE}")
    return cupy


def _check_arch(arch: str, capability: str) -> None:
    """Same major version, and not a newer minor one; the very same one for an arch like `sm_90a`.

    `capability` is CuPy's text, `90` for 9.0.
    """
    wanted, present = int(arch.removeprefix("sm_").rstrip("a")), int(capability)
    fits = wanted == present if arch.endswith("a") else wanted // 10 == present // 10 and wanted <= present
    if not fits:
        raise CudaUnavailableError(f"the kernel is for {arch}, the device is sm_{present}; {_ELSEWHERE}")


def _load_module(kernel: Kernel, cupy: ModuleType) -> cupy.RawModule:
    """The module of a cubin. CuPy reads it from a file, and only when a function is asked for an attribute."""
    with tempfile.TemporaryDirectory(prefix="gensor-gym-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(compile_cubin(kernel).cubin)
        module = cupy.RawModule(path=str(path))
        for launch in kernel.launches:
            _ = module.get_function(launch.entry).num_regs
    return module
