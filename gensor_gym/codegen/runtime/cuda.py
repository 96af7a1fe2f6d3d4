"""A CUDA kernel as a function on NumPy arrays: the cubin of NVRTC, loaded and launched through CuPy.

The device must be the architecture that the kernel is for: a cubin of sm_90 runs on compute capability 9.x only, one of
sm_90a on 9.0 only.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_gym.codegen.cuda.nvrtc import compile_cubin
from gensor_gym.codegen.cuda.tensor_map import with_maps
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.cuda_arrays import DeviceArrays

if TYPE_CHECKING:
    import cupy

OPT_IN_BYTES = 48 * 1024
"""Largest dynamic shared memory of a launch that needs no permission."""

_ELSEWHERE = "without one, use backend analytic, recorded or emulated"
_LOADED: dict[tuple[str, int], CudaKernel] = {}


class CudaUnavailableError(RuntimeError):
    """CuPy or a suitable device is missing; the message names it, and the alternatives."""


class CudaKernel:
    """A kernel on the current device, called with arrays of the device or of the host."""

    def __init__(self, kernel: Kernel, cupy: ModuleType) -> None:
        """Compile, load, and raise the shared memory limit where a launch needs it."""
        self.kernel = kernel
        self.arrays = DeviceArrays(kernel.operator, cupy)
        module = _load_module(kernel, cupy)
        self._cupy = cupy
        self._functions = [module.get_function(launch.entry) for launch in kernel.launches]
        for function, launch in zip(self._functions, kernel.launches, strict=True):
            if launch.shared_bytes > OPT_IN_BYTES:
                function.max_dynamic_shared_size_bytes = launch.shared_bytes

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """The output for the operator's inputs, enqueued on the stream of the first input's library.

        Arrays of the device (CuPy's, torch's, those with DLPack or `__cuda_array_interface__`) are read in place, those of the
        host are copied there. If all inputs are on the host, so is the output, and it is complete when the call returns; else it
        is an array of the first device input's library. `out` is the caller's own.

        ValueError names an array of wrong number, shape, type or device, and an `out` that overlaps an input; TensorMapError if
        the driver refuses a map.
        """
        with self.arrays.stream_of(inputs):
            arrays = self.arrays.inputs(inputs)
            outputs = self.arrays.outputs(out, arrays)
            self._launch(self._arguments(arrays, outputs))
            return self.arrays.returned(outputs, inputs, out)

    def bind(self, *arrays: Any) -> BoundCuda:
        """A launch of these arrays of the device, and of the output where one more is given, that checks nothing any more.

        It is enqueued on the stream that is CuPy's at the time. ValueError as for a call, and for an array of the host.
        """
        given, own = self.arrays.signature.split(arrays)
        inputs = self.arrays.inputs(given, copy=False)
        outputs = self.arrays.outputs(own, inputs, copy=False)
        out = self.arrays.returned(outputs, given, own)
        return BoundCuda(self._launch, self._arguments(inputs, outputs), out)

    def _arguments(self, arrays: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        """Arguments of every entry; the call's own workspace comes from CuPy's pool, which keeps it for its stream."""
        workspace = self._cupy.empty(-(-self.kernel.workspace_bytes // 4), dtype=np.float32)
        if self.kernel.cleared_bytes:
            workspace.data.memset_async(0, self.kernel.cleared_bytes)
        return with_maps(self.kernel.maps, (*arrays, *outputs, workspace))

    def _launch(self, arguments: tuple[Any, ...]) -> None:
        """All launches, in order, on the current stream."""
        for function, launch in zip(self._functions, self.kernel.launches, strict=True):
            function(launch.grid, launch.block, arguments, shared_mem=launch.shared_bytes)


class BoundCuda:
    """A kernel with its arrays, as of `CudaKernel.bind`. A call allocates nothing, so that a CUDA graph may capture it."""

    def __init__(self, launch: Callable[[tuple[Any, ...]], None], arguments: tuple[Any, ...], out: Any) -> None:
        """`out` is the result of a call, on the memory of the output."""
        self.out = out
        self._launch, self._arguments = launch, arguments

    def __call__(self) -> Any:
        """Launch, and return the output, which is there when the stream has come to it."""
        self._launch(self._arguments)
        return self.out


def load(kernel: Kernel) -> CudaKernel:
    """The kernel as a function of host arrays that returns a new one. Loaded once per device and digest.

    CudaUnavailableError if CuPy or a device of the kernel's architecture is missing, NvrtcError if it does not compile.
    """
    cupy = _cupy()
    device = cupy.cuda.Device()
    _check_arch(kernel.arch, device.compute_capability)
    key = (kernel.digest, device.id)
    if key not in _LOADED:
        _LOADED[key] = CudaKernel(kernel, cupy)
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
