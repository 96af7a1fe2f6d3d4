"""Runs compiled C kernels in a worker: buffers between guard words, the shared thread pool, timing in C."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gensor_gym.codegen.runtime.memory import ALIGNMENT, address_of, in_large_pages
from gensor_gym.codegen.runtime.threads import GgCall, caller, load_runtime, runtime
from gensor_gym.measure.answers.draw import DRAWS, Expected
from gensor_gym.measure.answers.expectation import make_draws
from gensor_gym.measure.devices.anchor import Anchor, cpu_anchor
from gensor_gym.measure.devices.buffers import GuardedBuffer, written_outside
from gensor_gym.measure.devices.energy import Rapl, energy
from gensor_gym.measure.isolation.counters import VARIABLE, Counters
from gensor_gym.measure.workers.affinity import pinned
from gensor_gym.measure.workers.requests import Built
from gensor_gym.measure.workers.trial import Baseline, BaselineKind, LaunchError
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.inputs import ARRAY_OFFSET, decode
from gensor_gym.operators.traits import WEIGHTS
from gensor_gym.operators.types import ARRAY_DTYPE, Operator

_MOST_COPIES = 64
"""Largest number of copies of constant weights. On few cores, weights that need more are loaded in no time."""
_MOST_DRAWS = 1 << 30
"""Largest number of bytes of random inputs and expected outputs that a worker caches."""


class CpuDevice:
    """This machine's processor as the device of a worker. Input buffers are reused for the next kernel of the same operator."""

    exclusive = False

    def __init__(self) -> None:
        """Compile and load the drift anchor (a fixed kernel that is timed every few trials) before any other kernel is loaded."""
        self.anchor: Anchor | None = Anchor(cpu_anchor())
        self._rapl, self._counters = Rapl(), Counters(os.environ.get(VARIABLE, ""))
        self.lock = ""
        self.draws_limit = _MOST_DRAWS
        self._operator: Computation | None = None
        self._inputs: list[GuardedBuffer] = []

    def draws(self, op: Computation, seed: int, places: Sequence[int] = DRAWS) -> tuple[Expected, ...]:
        """Draw the operator's random inputs and compute the expected outputs, by NumPy."""
        return make_draws(op, seed, places=places)

    def kinds(self, op: Computation) -> tuple[BaselineKind, ...]:
        """Return the torch baselines for an operator: only torch's own kernel in the operator's layout."""
        return ("torch",)

    def load(self, built: Built, threads: int) -> LoadedC:
        """Load a kernel's shared library. LaunchError if the loader refuses it, or if it lacks the kernel's function."""
        op = built.kernel.operator
        if op != self._operator:
            self._inputs = [GuardedBuffer(t.shape, ARRAY_DTYPE[t.dtype], ARRAY_OFFSET, t.pitch) for t in op.inputs]
            self._operator = op
        return LoadedC(built, threads, self._inputs)

    def baseline(self, op: Computation, draw: Expected, threads: int, kind: BaselineKind) -> Baseline:
        """Return torch's kernel on `threads` threads. ValueError for a fused operator, and for a `kind` that only GPUs have."""
        from gensor_gym.measure.baselines.torch import TorchBaseline

        if kind not in ("torch", "torch.prepacked"):
            raise ValueError(f"{kind} is a baseline on GPUs only")
        if not isinstance(op, Operator):
            raise ValueError(f"{op}: torch has no one operation that is timed beside a fused operator; see `suite=fused`")
        return TorchBaseline(op, draw.inputs, threads, kind == "torch.prepacked")

    def meters(self) -> dict[str, float]:
        """Return the energy of the processor's packages, idle cores included, and the counts of this process's threads."""
        return energy(self._rapl.joules()) | self._counters.read()

    def steady(self) -> AbstractContextManager[None]:
        """Return a context that keeps the calling thread on one CPU."""
        return pinned()


class LoadedC:
    """One loaded C kernel with its buffers. It implements `trial.Loaded`."""

    def __init__(self, built: Built, threads: int, inputs: list[GuardedBuffer]) -> None:
        kernel = built.kernel
        if len(kernel.launches) != 1:
            raise LaunchError(f"a C kernel has one entry, this has {len(kernel.launches)}")
        try:
            with _file_of(built) as path:
                self._library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
            self._entry = ctypes.cast(getattr(self._library, kernel.launches[0].entry), ctypes.c_void_p)
            prepares = getattr(self._library, kernel.prepares) if kernel.prepares else None
            self._prepares = ctypes.cast(prepares, ctypes.c_void_p) if prepares else None
        except (OSError, AttributeError) as error:
            raise LaunchError(f"cannot load the kernel: {error}") from error
        self._inputs = inputs
        self._dtypes = [output.dtype for output in kernel.operator.outputs]
        outputs = kernel.operator.outputs
        self._outputs = [GuardedBuffer(one.shape, ARRAY_DTYPE[one.dtype], 0, one.pitch) for one in outputs]
        self._written = (ctypes.c_void_p * len(self._outputs))(*(buffer.address for buffer in self._outputs))
        self._workspace = GuardedBuffer((max(kernel.workspace_bytes, 1),), np.uint8)
        self._addresses = (ctypes.c_void_p * max(1, len(inputs)))(*(b.address for b in inputs))
        self._runtime = runtime(threads)
        self._calls, self._next, self._memory = self._of_one(), 0, list[Any]()

    def write(self, draw: Expected) -> None:
        """Copy the draw's inputs to the buffers, fill outputs and workspace with NaN bytes, and pack constant weights."""
        for buffer, array in zip(self._inputs, draw.inputs, strict=True):
            buffer.array[...] = array
        self.poison()
        self._workspace.poison()
        self._calls, self._next, self._memory = self._of_one(), 0, []
        if self._prepares is not None:
            self._pack(self._workspace.address)
            self.poison()

    def copy_weights(self, nbytes: int) -> None:
        """Copy constant weights until all copies have `nbytes`, at most `_MOST_COPIES`. Calls read them in turn, until `write`.

        A kernel that packs its weights gets several workspaces. With 0 bytes, calls read one copy.
        """
        if not nbytes:
            return
        size = self._workspace.nbytes if self._prepares is not None else self._inputs[WEIGHTS].nbytes
        copies, apart = min(_MOST_COPIES, -(-nbytes // size)), -(-size // ALIGNMENT) * ALIGNMENT
        memory = in_large_pages(apart * copies)
        self._memory, calls = [memory], [self._calls[0]]
        for start in range(address_of(memory), address_of(memory) + apart * (copies - 1), apart):
            calls.append(self._packed(start) if self._prepares is not None else self._copied(start + ARRAY_OFFSET))
        self._calls = (GgCall * copies)(*calls)
        self.time(copies)  # packing has not touched all pages of the workspaces

    def _packed(self, workspace: int) -> GgCall:
        self._pack(workspace)
        return self._call(self._entry, self._addresses, workspace)

    def _pack(self, workspace: int) -> None:
        caller()(ctypes.byref(self._call(self._prepares, self._addresses, workspace)))

    def _copied(self, start: int) -> GgCall:
        weights, addresses = self._inputs[WEIGHTS], type(self._addresses)(*self._addresses)
        ctypes.memmove(start, weights.address, weights.nbytes)
        addresses[WEIGHTS] = start
        self._memory.append(addresses)
        return self._call(self._entry, addresses, self._workspace.address)

    def poison(self) -> None:
        """Fill the outputs with NaN bytes."""
        for output in self._outputs:
            output.poison()

    def time(self, calls: int) -> float:
        """Return the seconds of `calls` calls, measured in C by the monotonic clock."""
        kinds, first = len(self._calls), self._next
        self._next = (first + calls) % kinds
        return load_runtime().gg_time(self._calls, kinds, first, calls)

    def _of_one(self) -> ctypes.Array[GgCall]:
        """Return the calls without copies of the weights: one."""
        return (GgCall * 1)(self._call(self._entry, self._addresses, self._workspace.address))

    def _call(self, entry: ctypes.c_void_p | None, inputs: ctypes.Array[ctypes.c_void_p], workspace: int) -> GgCall:
        written = self._outputs[0].address if len(self._outputs) == 1 else ctypes.addressof(self._written)
        return GgCall(entry, ctypes.addressof(inputs), written, workspace, ctypes.addressof(self._runtime))

    def read(self) -> np.ndarray | list[np.ndarray]:
        """Return the decoded output, or a list of several outputs."""
        found = [decode(output.array, dtype) for output, dtype in zip(self._outputs, self._dtypes, strict=True)]
        return found[0] if len(found) == 1 else found

    def fault(self, draw: Expected) -> str:
        """Compare the output buffers with the reference of `draw`.

        Return a message about wrong elements; empty if all are right.
        """
        return draw.fault(self.read())

    def damage(self, draw: Expected) -> str:
        """Return a message about guard words or inputs that the kernel has overwritten; empty if there are none."""
        outside = written_outside(self._outputs, self._workspace, self._inputs)
        return outside or draw.changed([buffer.array for buffer in self._inputs])

    def conditions(self) -> dict[str, object]:
        """Return the processor's name."""
        return {"device": processor_name()}

    def close(self) -> None:
        """Unload the library."""
        _ctypes.dlclose(self._library._handle)


@contextmanager
def _file_of(built: Built) -> Iterator[str]:
    """Yield the path of the kernel's library in a context: its file, or a temporary copy of the content sent with the kernel.

    The copy has a new name each time, because a loader returns the loaded library for a known name. OSError, with the
    reason in `built.refused`, if the content was not sent.
    """
    if built.refused:
        raise OSError(built.refused)
    if not built.library:
        yield built.path
        return
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(built.library)
        file.flush()
        yield file.name


@lru_cache(maxsize=1)
def processor_name() -> str:
    """Return the model name of this machine's processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
