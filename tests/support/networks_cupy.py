"""As much of CuPy as networks on a GPU use, over NumPy: the emulator runs kernels, a graph its captured work."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.codegen.runtime.memory import aligned
from gensor_gym.measure.emulator.emulator import EmulatedKernels
from tests.support import fake_streams
from tests.support.fake_streams import Graph


class Stream(fake_streams.Stream):
    """A stream of this CuPy: its current one is no other's."""

    ptr = 7


Stream.current = DEFAULT = Stream()


class Event:
    """An event; its time is the number of launches of graphs before it."""

    recorded = False

    def record(self, stream: Stream) -> None:
        self.recorded, self.time = True, Graph.launches

    def synchronize(self) -> None:
        assert self.recorded


def enqueue(work: Callable[..., None], *arrays: np.ndarray) -> None:
    """Do work on arrays now, or when the graph is launched that the current stream captures; it keeps their addresses alone."""
    assert Stream.current is not None
    at = [address(array) for array in arrays]
    Stream.current._enqueue(lambda: work(*(one() for one in at)))


def address(array: np.ndarray) -> Callable[[], np.ndarray]:
    """The array again, as long as what owns its memory has not been freed."""
    owner, shape, dtype, strides = array, array.shape, array.dtype, array.strides
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    memory, offset = weakref.ref(owner), array.ctypes.data - owner.ctypes.data

    def found() -> np.ndarray:
        whole = memory()
        assert whole is not None, "a graph uses memory that was freed"
        return np.ndarray(shape, dtype, whole, offset, strides)

    return found


class Array(np.ndarray):
    """An array on the device: assignments are work of the current stream."""

    @property
    def device(self) -> types.SimpleNamespace:
        return types.SimpleNamespace(id=0)

    @property
    def data(self) -> types.SimpleNamespace:
        return types.SimpleNamespace(ptr=self.ctypes.data)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __setitem__(self, place: Any, value: Any) -> None:
        enqueue(lambda to, of: to.__setitem__(place, of), self, np.asarray(value))


def on_device(array: Any) -> Array:
    """A copy of an array on the device."""
    made = aligned(np.shape(array), np.asarray(array).dtype)
    made[...] = array
    return made.view(Array)


class Launching:
    """An entry of a kernel. The first one does all of the kernel's work, in the emulator."""

    max_dynamic_shared_size_bytes, num_regs = 0, 32

    def __init__(self, kernel: Kernel, entry: str, programs: dict[str, EmulatedKernels]) -> None:
        self.kernel, self.programs = kernel, programs
        self.first = entry == kernel.launches[0].entry

    def __call__(self, grid: tuple, block: tuple, arguments: tuple, shared_mem: int = 0) -> None:
        enqueue(lambda *given: self.run(given), *arguments)

    def run(self, arguments: Sequence[np.ndarray]) -> None:
        if not self.first:
            return
        if self.kernel.digest not in self.programs:
            self.programs[self.kernel.digest] = EmulatedKernels([self.kernel], sanitize=False)
        count = len(self.kernel.operator.inputs)
        inputs, outputs = arguments[:count], arguments[count:-1]
        assert all(array.ctypes.data % 16 == 0 for array in (*inputs, *outputs)), "a wide load of such an array faults"
        workspace = arguments[-1].view(np.ndarray)
        assert workspace.nbytes == self.kernel.workspace_bytes and (not workspace.size or workspace.ctypes.data % 16 == 0)
        assert not workspace[: self.kernel.cleared_bytes].any(), "other kernels wrote there"
        for array in (*outputs, workspace[self.kernel.cleared_bytes :]):  # they may overlap nothing that is still to be read
            array.view(np.ndarray).reshape(-1).view(np.uint8)[...] = 0xFF
        made = self.programs[self.kernel.digest].run(0, [np.asarray(array) for array in inputs])
        for array, result in zip(outputs, made if len(outputs) > 1 else [made], strict=True):
            array.view(np.ndarray)[...] = result


FOLLOWING: list[str] = []
"""Entries that may start while the kernel before runs."""


def launch_dependent(function: Launching, launch: Launch, arguments: tuple, stream: int) -> None:
    """In place of `cuda.launch_dependent`."""
    assert function.kernel.dependent and stream == Stream.ptr
    FOLLOWING.append(launch.entry)
    function(launch.grid, launch.block, arguments, launch.shared_bytes)


def loader(programs: dict[str, EmulatedKernels]) -> Callable[[Kernel, Any], Any]:
    """In place of `cuda._load_module`: modules whose entries run in the emulator; compiled programs are kept in `programs`."""

    def loaded(kernel: Kernel, cupy: Any) -> Any:
        return types.SimpleNamespace(get_function=lambda entry: Launching(kernel, entry, programs))

    return loaded


def module() -> types.ModuleType:
    """The stand-in for CuPy."""
    made = types.ModuleType("cupy")
    made.ndarray, made.asarray, made.asnumpy, made.from_dlpack = Array, on_device, np.array, on_device
    made.may_share_memory = np.may_share_memory
    made.empty = lambda shape, dtype: aligned(shape if isinstance(shape, tuple) else (shape,), np.dtype(dtype)).view(Array)
    made.zeros = lambda shape, dtype: on_device(np.zeros(shape, dtype))
    device = types.SimpleNamespace(id=0, compute_capability="90", synchronize=lambda: None)
    runtime = types.SimpleNamespace(CUDARuntimeError=RuntimeError, getDeviceCount=lambda: 1)
    made.cuda = types.SimpleNamespace(
        Stream=Stream, Event=Event, Device=lambda: device, runtime=runtime, get_current_stream=lambda: Stream.current,
        get_elapsed_time=lambda start, end: 1e3 * (end.time - start.time),
    )  # fmt: skip
    return made
