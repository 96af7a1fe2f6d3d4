"""As much of CuPy as `measure.cuda_device` uses, over NumPy: tests its order of calls and its bookkeeping, no kernel.

`launch(entry, arguments)` is what a kernel does; tests replace it. Work captured into a graph runs when it is launched.
Entries of `reference.cu` run as they are written, in the emulator.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable

import numpy as np
import pytest

from gensor_gym.measure.answers.reference_kernels import ENTRIES
from tests.support import reference_emulator
from tests.support.fake_streams import Graph, Stream

DEVICE = "gensor_gym.measure.devices.cuda"


class CUDARuntimeError(RuntimeError):
    pass


class CUDADriverError(RuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


class Pointer:
    """Address of an array, with CuPy's `ptr` and `memset`."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @property
    def ptr(self) -> int:
        return self.array.ctypes.data

    def copy_from_device(self, source: Pointer, size: int) -> None:
        assert size == self.array.nbytes == source.array.nbytes
        self.array.view(np.uint8).reshape(-1)[...] = source.array.view(np.uint8).reshape(-1)

    def memset(self, value: int, size: int) -> None:
        assert size <= self.array.nbytes
        self.array.reshape(-1).view(np.uint8)[:size] = value

    memset_async = memset


class Array(np.ndarray):
    """NumPy array with CuPy's `set`, `data` and `device`."""

    def set(self, values: np.ndarray) -> None:
        self[...] = values

    @property
    def data(self) -> Pointer:
        return Pointer(self.view(np.ndarray))

    @property
    def device(self) -> Device:
        return Device()


class Clock:
    """Device time: every launch takes `seconds`."""

    now = 0.0
    seconds = 1e-4
    launches = 0


class Event:
    def record(self, stream: Stream) -> None:
        self.time = Clock.now

    def synchronize(self) -> None:
        pass


class Function:
    num_regs, local_size_bytes = 32, 0
    max_dynamic_shared_size_bytes = 0

    def __init__(self, entry: str) -> None:
        self.entry = entry

    def __call__(self, grid: tuple, block: tuple, arguments: tuple, shared_mem: int = 0) -> None:
        if shared_mem > max(48 * 1024, self.max_dynamic_shared_size_bytes):
            raise CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        stream = Stream.current
        assert stream is not None, "a launch on the default stream"
        self.shape = grid, block, shared_mem
        stream._enqueue(lambda: self.run(arguments))

    def run(self, arguments: tuple) -> None:
        if self.entry in ENTRIES:
            reference_emulator.run(self.entry, self.shape[0], self.shape[1], arguments, self.shape[2])
            return
        Clock.now += Clock.seconds
        Clock.launches += 1
        module.launch(self.entry, arguments)


class Device:
    id = 0
    compute_capability = "90"

    def synchronize(self) -> None:
        pass


def _launch(entry: str, arguments: tuple) -> None:
    raise NotImplementedError("tests set what a kernel does")


module = types.ModuleType("cupy")
module.__version__ = "fake"
module.launch = _launch
module.uint8 = np.uint8
module.ndarray = Array
module.asarray = lambda array: np.array(array).view(Array)
module.empty = lambda size, dtype: np.empty(size, dtype).view(Array)
module.asnumpy = np.array
module.from_dlpack = lambda array: np.from_dlpack(array).view(Array)
module.may_share_memory = np.may_share_memory
module.get_default_memory_pool = lambda: types.SimpleNamespace(free_all_blocks=lambda: None)
module.RawModule = lambda path: types.SimpleNamespace(get_function=Function)
module.cuda = types.SimpleNamespace(
    Stream=Stream,
    ExternalStream=lambda pointer: Stream(),
    Graph=Graph,
    Event=Event,
    Device=Device,
    get_elapsed_time=lambda start, end: 1e3 * (end.time - start.time),
    memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    driver=types.SimpleNamespace(CUDADriverError=CUDADriverError),
    runtime=types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceProperties=lambda index: {"name": b"Fake GPU", "l2CacheSize": 1 << 20, "totalGlobalMem": 1 << 30},
        deviceGetPCIBusId=lambda index: "0000:00:00.0",
        getDeviceCount=lambda: 1,
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13000,
    ),
)


def device_module(monkeypatch: pytest.MonkeyPatch, launch: Callable[[str, tuple], object]) -> types.ModuleType:
    """`measure.devices.cuda` over this CuPy, whose kernels all do this; what imports it after the test gets that of CuPy."""
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr(module, "launch", launch)
    monkeypatch.setitem(sys.modules, DEVICE, module)  # so that the import below is taken back
    del sys.modules[DEVICE]
    return importlib.import_module(DEVICE)
