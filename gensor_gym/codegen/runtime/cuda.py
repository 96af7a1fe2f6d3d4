"""Load a CUDA kernel as a function of arrays on the GPU or the host. CuPy loads and launches the cubin of NVRTC.

The device must have the kernel's architecture: a cubin of sm_90 runs on compute capability 9.x only, a cubin of sm_90a on 9.0
only.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_gym.codegen.cuda.dependent import launch_dependent
from gensor_gym.codegen.cuda.nvrtc import compile_cubin
from gensor_gym.codegen.cuda.tensor_map import with_maps
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.cuda_arrays import DeviceArrays

if TYPE_CHECKING:
    import cupy

OPT_IN_BYTES = 48 * 1024
"""Largest dynamic shared memory of a launch, in bytes, for which the function's limit need not be raised."""

_ELSEWHERE = "without one, use backend analytic, recorded or emulated"
_LOADED: dict[tuple[str, int], CudaKernel] = {}


class CudaUnavailableError(RuntimeError):
    """CuPy or a suitable device is missing; the message names the missing part and the alternatives."""


class CudaKernel:
    """A kernel loaded on the current device, called with arrays of the device or of the host."""

    def __init__(self, kernel: Kernel, cupy: ModuleType) -> None:
        self.kernel = kernel
        self.arrays = DeviceArrays(kernel.operator, cupy)
        module = _load_module(kernel, cupy)
        self._cupy = cupy
        self._functions = [module.get_function(launch.entry) for launch in kernel.launches]
        for function, launch in zip(self._functions, kernel.launches, strict=True):
            if launch.shared_bytes > OPT_IN_BYTES:
                function.max_dynamic_shared_size_bytes = launch.shared_bytes

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Enqueue the kernel on torch's stream if the first device input is torch's, else on CuPy's; return the output.

        Arrays on the device (of CuPy, torch, or with DLPack or `__cuda_array_interface__`) are read in place, host arrays are
        copied to it. If all inputs are on the host, the output is on the host too, and complete when the call returns.
        Otherwise the output is an array of the first device input's library. If `out` is given, it is filled in and returned.

        ValueError for arrays of wrong number, shape, type or device, and for an `out` that overlaps an input; TensorMapError if
        the driver refuses a tensor map.
        """
        with self.arrays.stream_of(inputs):
            arrays = self.arrays.inputs(inputs)
            outputs = self.arrays.outputs(out, arrays)
            self._launch(self._arguments(arrays, outputs))
            return self.arrays.returned(outputs, inputs, out)

    def bind(self, *arrays: Any) -> BoundCuda:
        """Return a function without arguments that launches the kernel on device arrays (inputs, then outputs if given).

        A call enqueues the kernel on CuPy's current stream and checks nothing. `bind` checks the arrays: ValueError as in
        `__call__`, and for an array on the host.
        """
        given, own = self.arrays.signature.split(arrays)
        inputs = self.arrays.inputs(given, copy=False)
        outputs = self.arrays.outputs(own, inputs, copy=False)
        out = self.arrays.returned(outputs, given, own)
        return BoundCuda(self._launch, self._arguments(inputs, outputs), out)

    def within(self, inputs: Sequence[Any], outputs: Sequence[Any], workspace: Any, follows: bool = False) -> Callable[[], None]:
        """Return a function that launches the kernel on dense, aligned CuPy arrays in the caller's workspace, and checks nothing.

        The first `Kernel.cleared_bytes` of the workspace must be zero before the first launch. With `follows`, the stream's work
        right before it is a kernel of ours, so a dependent kernel may start while that runs.
        """
        return partial(self._launch, with_maps(self.kernel.maps, (*inputs, *outputs, workspace)), follows)

    def _arguments(self, arrays: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        """Return the arguments of every launch, with a new workspace.

        The workspace is from CuPy's memory pool, which reuses it on the same stream only.
        """
        workspace = self._cupy.empty(-(-self.kernel.workspace_bytes // 4), dtype=np.float32)
        if self.kernel.cleared_bytes:
            workspace.data.memset_async(0, self.kernel.cleared_bytes)
        return with_maps(self.kernel.maps, (*arrays, *outputs, workspace))

    def _launch(self, arguments: tuple[Any, ...], follows: bool = False) -> None:
        for function, launch in zip(self._functions, self.kernel.launches, strict=True):
            if follows and self.kernel.dependent:
                launch_dependent(function, launch, arguments, self._cupy.cuda.get_current_stream().ptr)
                continue
            follows = True
            function(launch.grid, launch.block, arguments, shared_mem=launch.shared_bytes)


class BoundCuda:
    """A kernel bound to its arrays by `CudaKernel.bind`. A call allocates nothing, so a CUDA graph can capture it."""

    def __init__(self, launch: Callable[[tuple[Any, ...]], None], arguments: tuple[Any, ...], out: Any) -> None:
        """Bind the function `launch` to its arguments.

        `out` is the object that calls return; it shares the memory of the outputs in `arguments`.
        """
        self.out = out
        self._launch, self._arguments = launch, arguments

    def __call__(self) -> Any:
        """Enqueue the kernel and return the output, whose content is complete once the stream has run the kernel."""
        self._launch(self._arguments)
        return self.out


def load(kernel: Kernel) -> CudaKernel:
    """Load a CUDA kernel as a function of arrays, once per device and digest.

    CudaUnavailableError if CuPy or a device of the kernel's architecture is missing, NvrtcError if it does not compile.
    """
    cupy = cupy_module()
    device = cupy.cuda.Device()
    _check_arch(kernel.arch, device.compute_capability)
    key = (kernel.digest, device.id)
    if key not in _LOADED:
        _LOADED[key] = CudaKernel(kernel, cupy)
    return _LOADED[key]


def cupy_module() -> ModuleType:
    """Return the CuPy module; CudaUnavailableError if it is not installed or finds no device."""
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
    """Check that a device can run cubins of `arch`; CudaUnavailableError if not. `capability` is CuPy's text, `90` for 9.0.

    The major versions must be equal and the device's minor version not older; for an arch like `sm_90a` both are equal.
    """
    wanted, present = int(arch.removeprefix("sm_").rstrip("a")), int(capability)
    fits = wanted == present if arch.endswith("a") else wanted // 10 == present // 10 and wanted <= present
    if not fits:
        raise CudaUnavailableError(f"the kernel is for {arch}, the device is sm_{present}; {_ELSEWHERE}")


def _load_module(kernel: Kernel, cupy: ModuleType) -> cupy.RawModule:
    """Compile a kernel and load its cubin. CuPy reads the file at the first access to a function's attribute."""
    with tempfile.TemporaryDirectory(prefix="gensor-gym-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(compile_cubin(kernel).cubin)
        module = cupy.RawModule(path=str(path))
        for launch in kernel.launches:
            _ = module.get_function(launch.entry).num_regs
    return module
