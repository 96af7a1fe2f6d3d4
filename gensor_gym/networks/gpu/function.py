"""A network on a GPU as one function: its kernels in memory of its own, captured once as a CUDA graph.

A call copies its inputs into that memory, launches the graph and copies the outputs out of it, all on the caller's stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from gensor_gym.codegen.cuda.dependent import dependent
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime import cuda
from gensor_gym.codegen.runtime.cuda_arrays import DeviceArrays, is_readable
from gensor_gym.networks.gpu.memory import Memory, Task, Tasks
from gensor_gym.networks.plan import Plan
from gensor_gym.operators.types import ARRAY_DTYPE


class GpuNetwork:
    """A network on the GPU that is current at the first call, which compiles and loads the kernels.

    Calls on several streams wait for one another, since they share memory. A call must not be captured into another graph.
    """

    def __init__(self, plan: Plan, kernels: Sequence[Kernel], mode: str = "whole") -> None:
        """Lay out the memory; no GPU is needed. `mode` is one of `networks.arena.MODES`."""
        self.tasks = Tasks(plan, kernels, mode)
        self._made_of = plan, kernels, mode
        self.layout = self.tasks.layout
        self.constants: dict[str, np.ndarray] = {}
        """Empty: this object keeps no constants, and the network's arrays are used."""
        self._held: LoadedNetwork | None = None
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Enqueue the network. Return the outputs; with `out`, write to it and return it.

        Streams, arrays and errors are as for `CudaKernel`. ValueError also for ids outside their table; the check waits until the
        ids are computed.
        """
        called = self.tasks.called
        if called.id_limits or called.limits:
            called.check_ids(inputs)
        with self._lock:
            return self._load()(inputs, out)

    def dependent(self) -> GpuNetwork:
        """Return the network with kernels that are launched while earlier ones run, and that wait for these.

        No GPU has run it, so it is not the default. ValueError for machines before sm_90 (`codegen.cuda.dependent`).
        """
        return self.with_kernels([dependent(task.kernel) for task in self.tasks.listed])

    def with_kernels(self, kernels: Sequence[Kernel]) -> GpuNetwork:
        """Return the network with other kernels of the same computations, in the same order."""
        plan, _, mode = self._made_of
        return GpuNetwork(plan, kernels, mode)

    def loaded(self) -> LoadedNetwork:
        """Return the network on the current GPU. The first call of this method or of the network loads it."""
        with self._lock:
            return self._load()

    def _load(self) -> LoadedNetwork:
        if self._held is None:
            self._held = LoadedNetwork(self.tasks, cuda.cupy_module())
        return self._held

    @property
    def launches(self) -> int:
        """Return the number of kernel launches of one call."""
        return sum(len(task.kernel.launches) for task in self.tasks.listed)


class LoadedNetwork:
    """Kernels and memory of a network on one GPU."""

    def __init__(self, tasks: Tasks, cupy: ModuleType) -> None:
        self.arrays, self._cupy = DeviceArrays(tasks.called, cupy), cupy
        own = [
            [cupy.zeros(tensor.shape, np.dtype(ARRAY_DTYPE[tensor.dtype])) for tensor in tensors]
            for tensors in (tasks.called.inputs, tasks.called.outputs)
        ]
        blocks = cupy.zeros(tasks.layout.workspace_bytes, np.uint8), cupy.asarray(tasks.fixed())
        self.memory = Memory(own[0], own[1], *blocks)
        self._calls, follows = list[Callable[[], None]](), False
        for task in tasks.listed:
            call, follows = self._bound(task, follows)
            self._calls.append(call)
        self._done = cupy.cuda.Event()
        self._stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()  # the copies above ran on another stream
        with self._stream:
            self._launch()  # CuPy loads its copy kernels at their first use, which a capture forbids
            self._done.record(self._stream)
        self._stream.synchronize()
        self.graph = self.captured(1)
        """CuPy's graph of all launches. It reads and writes `memory`."""

    def captured(self, calls: int, only: int | None = None) -> Any:
        """Capture `calls` calls of the network on `memory` as a CUDA graph of CuPy, without copies of inputs and outputs.

        With `only`, it has the kernel of this place alone.
        """
        with self._stream:
            self._stream.begin_capture()
            try:
                for _ in range(calls):
                    self._launch(only)
            finally:
                graph = self._stream.end_capture()
            graph.upload(self._stream)
        return graph

    def _launch(self, only: int | None = None) -> None:
        for call in self._calls if only is None else self._calls[only : only + 1]:
            call()

    def _bound(self, task: Task, follows: bool) -> tuple[Callable[[], None], bool]:
        """Return a function that enqueues a kernel with its arrays in the network's memory, and whether no copy comes after it.

        Arrays at addresses not divisible by 16 bytes are copied before the launch, or afterwards if they are outputs. `follows`
        says whether a kernel comes right before.
        """
        inputs, outputs, workspace = task.arrays(self.memory)
        before, after = list[tuple[Any, Any]](), list[tuple[Any, Any]]()
        for arrays, copies in ((inputs, before), (outputs, after)):
            for place, array in enumerate(arrays):
                if not is_readable(array):
                    arrays[place] = self._cupy.empty(array.shape, array.dtype)
                    copies.append((arrays[place], array) if copies is before else (array, arrays[place]))
        launch = cuda.load(task.kernel).within(inputs, outputs, workspace, follows and not before)

        def call() -> None:
            _copy(before)
            launch()
            _copy(after)

        return call, not after

    def __call__(self, inputs: Sequence[Any], out: Any) -> Any:
        """Enqueue the network; see `GpuNetwork.__call__`."""
        with self.arrays.stream_of(inputs):
            given = self.arrays.inputs(inputs)
            outputs = self.arrays.outputs(out, given)
            stream = self._cupy.cuda.get_current_stream()
            stream.wait_event(self._done)
            _copy(list(zip(self.memory.inputs, given, strict=True)))
            self.graph.launch(stream)
            _copy(list(zip(outputs, self.memory.outputs, strict=True)))
            self._done.record(stream)
            return self.arrays.returned(outputs, inputs, out)


def _copy(pairs: Sequence[tuple[Any, Any]]) -> None:
    """Enqueue copies on the current stream. Each pair is (destination, source)."""
    for to, of in pairs:
        to[...] = of
