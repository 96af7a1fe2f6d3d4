"""Compiled CUDA kernels (cubins) in a worker, through CuPy: guarded buffers, CUDA graphs of many calls, times from events.

Caches are warm: L2 keeps the data of the previous call. A sample is measured by one pair of events around graphs of many calls.
It includes neither Python nor the launch queue, so it is the time of a call on a busy GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import cupy
import numpy as np

from gensor_gym.codegen.cuda.nvrtc import NvrtcError
from gensor_gym.codegen.cuda.tensor_map import TensorMapError, with_maps
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.measure.answers.device_draws import SETTING, ReferenceFault, chosen_place, device_draws, downloaded
from gensor_gym.measure.answers.device_fused import device_fused
from gensor_gym.measure.answers.draw import DRAWS, Expected
from gensor_gym.measure.answers.expectation import operator_draws
from gensor_gym.measure.answers.fused import FusedDraw, downloaded_fused, fused_draws
from gensor_gym.measure.answers.reference_kernels import ReferenceKernels
from gensor_gym.measure.devices.anchor import Anchor
from gensor_gym.measure.devices.buffers import written_outside
from gensor_gym.measure.devices.energy import energy
from gensor_gym.measure.devices.machine_lock import timing_lock
from gensor_gym.measure.devices.nvml import Nvml
from gensor_gym.measure.workers.requests import Built
from gensor_gym.measure.workers.trial import Baseline, BaselineKind, DeviceLost, LaunchError
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.types import ARRAY_DTYPE, Operator

_GUARD_BYTES = 4096
_GUARD = 0xA5
_GRAPH_CALLS = 128
_MOST_DRAWS = 8 << 30
"""Largest number of bytes of device memory for cached inputs and expected outputs. A quarter of the device's memory is the other
limit.
"""
_STATIC_SHARED = 48 * 1024
_STICKY = re.compile(
    r"ILLEGAL_?ADDRESS|MISALIGNED|ILLEGAL_?INSTRUCTION|LAUNCH_?(FAILED|FAILURE|TIMEOUT)|INVALID_?PC|HARDWARE_?STACK"
    r"|ASSERT|ECC|UNKNOWN|INVALID_?ADDRESS_?SPACE",
    re.IGNORECASE,
)


@contextmanager
def translated() -> Iterator[None]:
    """Return a context that turns CUDA errors into DeviceLost if they make the device unusable, else into LaunchError."""
    try:
        yield
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        text = str(error)
        raise (DeviceLost(text) if _STICKY.search(text) else LaunchError(text)) from error
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise LaunchError(f"out of GPU memory: {error}") from error
    except TensorMapError as error:
        raise LaunchError(str(error)) from error


@contextmanager
def referenced() -> Iterator[None]:
    """Return a context in which references are computed or compared.

    It turns a CUDA error into ReferenceFault, because no kernel is at fault.
    """
    try:
        with translated():
            yield
    except LaunchError as error:
        text = f"reference answers cannot be had on the device: {error}. {SETTING}=host computes them on the host (slow)"
        raise ReferenceFault(text) from error
    except DeviceLost as error:
        raise DeviceLost(f"while reference answers were computed or compared: {error}") from error


def _download(array: Any) -> np.ndarray:
    with translated():
        return cupy.asnumpy(array)


def tensor_array(tensor: Any) -> Any:
    """Return a CuPy array of a torch tensor's memory.

    16-bit integers are the bits of bfloat16, unsigned as in kernels' outputs.
    """
    array = cupy.asarray(tensor)
    return array.view(np.uint16) if array.dtype == np.int16 else array


class DeviceBuffer:
    """An array on the GPU with guard words on both sides."""

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        self._all = cupy.empty(nbytes + 2 * _GUARD_BYTES + -nbytes % 256, dtype=cupy.uint8)
        self._data = self._all[_GUARD_BYTES : _GUARD_BYTES + nbytes]
        self._sides = (self._all[:_GUARD_BYTES], self._all[_GUARD_BYTES + nbytes :])
        self.array = self._data.view(np.dtype(dtype)).reshape(shape)
        self.guard()

    def guard(self) -> None:
        """Write the guard words."""
        for side in self._sides:
            side.data.memset(_GUARD, side.nbytes)

    def fill(self, array: Any) -> None:
        """Copy an array on the host or the device into the buffer."""
        if isinstance(array, cupy.ndarray):
            self._data.data.copy_from_device(array.data, self._data.nbytes)
        else:
            self.array.set(np.ascontiguousarray(array))

    def intact(self) -> bool:
        """Whether all guard words are unchanged. They are compared on the host."""
        return all(bool((cupy.asnumpy(side) == _GUARD).all()) for side in self._sides)

    def poison(self, cleared: int = 0) -> None:
        """Fill the data with 0xFF bytes (NaN in floating types), but the first `cleared` bytes with zeros."""
        self._data.data.memset(0xFF, self._data.nbytes)
        if cleared:
            self._data.data.memset(0, cleared)


class CudaDevice:
    """GPU 0 as the device of a worker. Input buffers are reused for the next kernel of the same operator."""

    exclusive = True

    def __init__(self) -> None:
        index = cupy.cuda.Device().id
        properties = cupy.cuda.runtime.getDeviceProperties(index)
        address = cupy.cuda.runtime.deviceGetPCIBusId(index)
        self.nvml = Nvml(address)
        self.lock = f"-{address}"
        self.description = {
            "device": properties["name"].decode(),
            "driver": cupy.cuda.runtime.driverGetVersion(),
            "runtime": cupy.cuda.runtime.runtimeGetVersion(),
            "cupy": cupy.__version__,
            "l2_bytes": properties["l2CacheSize"],
        }
        self.anchor: Anchor | None = None  # not needed: every trial records the SM clock
        self.draws_limit = min(_MOST_DRAWS, int(properties["totalGlobalMem"]) // 4)
        self._kernels: ReferenceKernels | None = None
        self._operator: Computation | None = None
        self._inputs: list[DeviceBuffer] = []

    def draws(self, op: Computation, seed: int, places: Sequence[int] = DRAWS) -> tuple[Expected, ...]:
        """Draw the operator's random inputs and compute the expected outputs.

        This happens on the device, or on the host if $GENSOR_GYM_REFERENCE is `host`. For fused operators NumPy computes the
        expected outputs, and the device compares.
        """
        on_host = chosen_place() == "host"
        if isinstance(op, Dataflow):
            return self._fused_draws(op, fused_draws(op, seed, places), on_host)
        assert isinstance(op, Operator)
        if on_host:
            return tuple(downloaded(draw, op, _download) for draw in operator_draws(op, seed, places=places))
        made = device_draws(self._reference_kernels(), op, seed, self.draws_limit, lambda: timing_lock(self.lock))
        return tuple(made[place] for place in places)

    def _fused_draws(self, op: Dataflow, draws: Sequence[FusedDraw], on_host: bool) -> tuple[Expected, ...]:
        """Copy a fused operator's draws (inputs with expected outputs) to the device.

        If they do not fit there, or if `on_host`, they stay on the host and outputs are downloaded for comparison.
        """
        with suppress(ReferenceFault):
            if not on_host:
                kernels = self._reference_kernels()
                with timing_lock(self.lock):
                    return device_fused(kernels, op, draws, _download)
        return tuple(downloaded_fused(draw, _download) for draw in draws)

    def _reference_kernels(self) -> ReferenceKernels:
        """Return the kernels of `reference.cu`, loaded at the first call. ReferenceFault if they do not compile."""
        if self._kernels is None:
            try:
                self._kernels = ReferenceKernels(cupy, f"sm_{cupy.cuda.Device().compute_capability}", referenced)
            except NvrtcError as error:
                raise ReferenceFault(f"reference.cu does not compile: {error}. {SETTING}=host does without (slow)") from error
        return self._kernels

    def kinds(self, op: Computation) -> tuple[BaselineKind, ...]:
        """Return the torch baselines for an operator, one per available layout.

        Torch is imported here, before the timing lock is held.
        """
        with suppress(ImportError):  # without torch no kind is used
            import torch  # noqa: F401

        from gensor_gym.measure.baselines.torch_cuda import layouts

        if not isinstance(op, Operator):
            return ("torch",)
        return ("torch", *layouts(op))

    def load(self, built: Built, threads: int) -> LoadedCubin:
        """Load a cubin; LaunchError if the driver refuses it. `threads` is ignored."""
        with translated():
            op = built.kernel.operator
            if op != self._operator:
                self._inputs = []
                cupy.get_default_memory_pool().free_all_blocks()
                self._inputs = [DeviceBuffer(t.shape, ARRAY_DTYPE[t.dtype]) for t in op.inputs]
                self._operator = op
            return LoadedCubin(self, built, self._inputs)

    def baseline(self, op: Computation, draw: Expected, threads: int, kind: BaselineKind) -> Baseline:
        """Return torch's kernel on this GPU for a layout or compiler (`kind`).

        ValueError for a fused operator or prepacked weights.
        """
        from gensor_gym.measure.baselines.torch_cuda import TorchCudaBaseline

        if kind == "torch.prepacked":
            raise ValueError("prepacked weights are a baseline on CPUs only")
        if not isinstance(op, Operator):
            raise ValueError(f"{op}: torch has no one operation that is timed beside a fused operator; see stage `fused`")
        return TorchCudaBaseline(op, draw.inputs, kind, tensor_array)

    def meters(self) -> dict[str, float]:
        """Return the energy of the whole GPU, by NVML."""
        return energy(self.nvml.joules())

    def steady(self) -> AbstractContextManager[None]:
        """Return a context that does nothing, because events on the device measure the time."""
        return nullcontext()


class LoadedCubin:
    """One loaded CUDA kernel, which consists of one or several launches in order, with its buffers.

    It implements `trial.Loaded`.
    """

    def __init__(self, device: CudaDevice, built: Built, inputs: list[DeviceBuffer]) -> None:
        kernel = built.kernel
        self._device = device
        self._stream = cupy.cuda.Stream(non_blocking=True)
        module = cupy.RawModule(path=built.path)
        self._launches = []
        for launch in kernel.launches:
            function = module.get_function(launch.entry)
            if launch.shared_bytes > _STATIC_SHARED:
                function.max_dynamic_shared_size_bytes = launch.shared_bytes
            self._launches.append((function, launch))
        # Reading attributes loads the module now: it cannot be loaded while a graph is captured.
        self._registers = max(function.num_regs for function, _ in self._launches)
        self._spilled = max(function.local_size_bytes for function, _ in self._launches)
        self._inputs = inputs
        self._outputs = [DeviceBuffer(output.shape, ARRAY_DTYPE[output.dtype]) for output in kernel.operator.outputs]
        self._cleared = kernel.cleared_bytes
        self._workspace = DeviceBuffer((max(1, -(-kernel.workspace_bytes // 4)),), "float32")
        plain = (*(buffer.array for buffer in (*inputs, *self._outputs)), self._workspace.array)
        self._arguments = with_maps(kernel.maps, plain)
        self._graphs: dict[int, cupy.cuda.Graph] = {}

    def write(self, draw: Expected) -> None:
        """Copy the draw's inputs into the buffers, and fill outputs and workspace with NaN bytes."""
        with translated():
            for buffer, array in zip(self._inputs, draw.inputs, strict=True):
                buffer.fill(array)
            for output in self._outputs:
                output.poison()
            self._workspace.poison(self._cleared)
            cupy.cuda.Device().synchronize()

    def copy_weights(self, nbytes: int) -> None:
        """Do nothing for 0 bytes; otherwise LaunchError, because a GPU's kernels are timed with one copy of their weights."""
        if nbytes:
            raise LaunchError(f"copies of {nbytes} bytes of weights: expected a kernel of a CPU")

    def poison(self) -> None:
        """Fill the outputs with NaN bytes."""
        with translated():
            for output in self._outputs:
                output.poison()
            cupy.cuda.Device().synchronize()

    def time(self, calls: int) -> float:
        """Return the seconds between events around `calls` calls on one stream. Every call has ended when this returns."""
        whole, rest = divmod(calls, _GRAPH_CALLS)
        with translated():
            parts = [_GRAPH_CALLS] * whole + [rest] * (rest > 0)
            graphs = [self._graph(part) for part in parts] if calls > 1 else []
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record(self._stream)
            if not graphs:
                self._enqueue()  # a refused launch shows here, outside a capture
            for graph in graphs:
                graph.launch(self._stream)
            end.record(self._stream)
            end.synchronize()
            cupy.cuda.Device().synchronize()  # errors of work that a kernel left on another stream are its own
            return cupy.cuda.get_elapsed_time(start, end) * 1e-3

    def fault(self, draw: Expected) -> str:
        """Compare the output buffers with the reference of `draw`.

        Return a message about wrong elements; empty if all are right.
        """
        arrays = [output.array for output in self._outputs]
        return draw.fault(arrays[0] if len(arrays) == 1 else arrays)

    def damage(self, draw: Expected) -> str:
        """Return a message about guard words or inputs that the kernel has overwritten; empty if there are none."""
        with translated():
            outside = written_outside(self._outputs, self._workspace, self._inputs)
        return outside or draw.changed([buffer.array for buffer in self._inputs])

    def conditions(self) -> dict[str, object]:
        """Return conditions of the measurement: GPU, driver, the kernel's resources, current clock, temperature and power."""
        taken = {"registers": self._registers, "spilled_bytes": self._spilled}
        return {**self._device.description, **taken, **self._device.nvml.read()}

    def close(self) -> None:
        """Drop graphs and kernels."""
        self._graphs.clear()
        self._launches.clear()

    def _enqueue(self) -> None:
        with self._stream:
            for function, launch in self._launches:
                function(launch.grid, launch.block, self._arguments, shared_mem=launch.shared_bytes)

    def _graph(self, calls: int) -> cupy.cuda.Graph:
        if calls not in self._graphs:
            self._stream.begin_capture()
            try:
                for _ in range(calls):
                    self._enqueue()
            finally:
                graph = self._stream.end_capture()  # also after a failure: a capturing stream can do nothing else
            graph.upload(self._stream)
            self._stream.synchronize()
            self._graphs[calls] = graph
        return self._graphs[calls]
