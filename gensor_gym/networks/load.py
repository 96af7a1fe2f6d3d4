"""Loads a plan and its kernels as one native function of this process, without Python between kernels."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gensor_gym.codegen import runtime as rooms
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.c import NativeFunction, entry_of
from gensor_gym.codegen.runtime.compile import compile_text
from gensor_gym.codegen.runtime.memory import address_of, in_large_pages
from gensor_gym.codegen.runtime.threads import ARCH, GgRuntime, runtime
from gensor_gym.networks.layout import Layout, Place, layout_of
from gensor_gym.networks.loops import tasks_together
from gensor_gym.networks.plan import Plan
from gensor_gym.networks.steps import Step
from gensor_gym.operators.traits import WEIGHTS

MOST_ARRAYS = 64
"""Largest number of arrays of one kernel: `GG_MOST` of `network.c`."""


Placed = Callable[[Plan, Sequence[Kernel], Layout, np.ndarray, np.ndarray], tuple[Layout, np.ndarray]]
"""Function such as `networks.dynamic.weights.SharedWeights.place`, which places fixed memory."""


class _Place(ctypes.Structure):
    """`struct gg_place` of `network.c`."""

    _fields_ = [("base", ctypes.c_long), ("at", ctypes.c_size_t), ("before", ctypes.c_size_t)]


class _Step(ctypes.Structure):
    """`struct gg_step` of `network.c`."""

    _fields_ = [
        ("entry", ctypes.c_void_p), ("places", ctypes.c_void_p), ("inputs", ctypes.c_long), ("outputs", ctypes.c_long),
        ("tasks", ctypes.c_long), ("goes_on", ctypes.c_long),
    ]  # fmt: skip


class _Network(ctypes.Structure):
    """Python form of `struct gg_network` of `network.c`. A mutex takes 40 bytes on Linux for 64-bit processors."""

    _fields_ = [
        ("steps", ctypes.c_void_p), ("count", ctypes.c_long), ("fixed", ctypes.c_void_p), ("outputs", ctypes.c_long),
        ("exclusive", ctypes.c_long), ("forks", ctypes.c_ulong), ("busy", ctypes.c_char * 64),
    ]  # fmt: skip


class _Loaded(ctypes.Structure):
    """Python form of `struct gg_loaded` of `network.c`. `kept` keeps the memory alive to which its pointers point."""

    kept: Any

    _fields_ = [("runtime", GgRuntime), ("network", ctypes.c_void_p)]


class NetworkFunction(NativeFunction):
    """A loaded network, which is called with arrays of NumPy or of a library with DLPack.

    Several threads may call it. Calls of a network with packed weights wait for one another.
    """

    def __init__(
        self, plan: Plan, kernels: Sequence[Kernel], threads: int, mode: str = "hot", placed: Placed | None = None
    ) -> None:
        """Lay out memory, load the kernels, and pack weights once. `placed` puts constants where several networks share them.

        The plan's arrays may be freed afterwards. ValueError for a kernel with too many arrays, or if several kernels share a
        loop and a kernel's tasks do not fit its iterations.
        """
        together = tasks_together(plan.pieces, kernels)
        self.layout = layout_of(plan, kernels, mode)
        self.fixed = _fixed(plan, self.layout)
        """Memory of constants and packed weights, an array of bytes."""
        team = runtime(threads)
        _pack(plan, kernels, self.layout, self.fixed, threads)
        if placed is not None:
            again = in_large_pages(self.layout.fixed_bytes)
            again[:] = 0xFF
            _pack(plan, kernels, self.layout, again, threads)
            self.layout, self.fixed = placed(plan, kernels, self.layout, self.fixed, again)
        self.constants = _constants(plan, self.layout, self.fixed)
        """Name of an unpacked constant -> view of it in fixed memory."""
        distinct = {kernel.digest: kernel for kernel in kernels}
        entries: dict[str, Any] = {digest: entry_of(one, one.launches[0].entry) for digest, one in distinct.items()}
        steps = (_Step * len(kernels))()
        kept: list[Any] = [steps, entries]
        for place, (step, kernel) in enumerate(zip(plan.steps, kernels, strict=True)):
            places = _places(step, self.layout, self.layout.workspaces[place])
            kept.append(places)
            entry = ctypes.cast(entries[kernel.digest], ctypes.c_void_p)
            goes_on = plan.pieces[place].follows > 0
            steps[place] = _Step(entry, ctypes.addressof(places), len(step.reads), len(step.writes), together[place], goes_on)
        outputs, exclusive = len(plan.network.outputs), any(kernel.prepacked for kernel in kernels)
        network = _Network(ctypes.addressof(steps), len(steps), address_of(self.fixed), outputs, exclusive)
        self.team, self.network_address = GgRuntime(team.threads, team.parallel), ctypes.addressof(network)
        loaded = _Loaded(self.team, self.network_address)
        loaded.kept = kept, network, self.fixed  # so that a bound call works without the function object
        self.called = plan.network.called
        super().__init__(self.called, compiled("network.c").gg_network_entry, loaded, self.layout.workspace_bytes)

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Run the network; arguments and errors are those of `NativeFunction`.

        ValueError also for ids outside their table and for integers beyond exact arithmetic, which calls after `bind` do not
        check.
        """
        if self.called.id_limits or self.called.limits:
            self.called.check_ids(inputs)
        return super().__call__(*inputs, out=out)


def compiled(*names: str) -> ctypes.CDLL:
    """Compile files of the C runtime as one text, and load them."""
    folder = Path(rooms.__path__[0])
    text = "".join(folder.joinpath(name).read_text("utf-8") for name in ("runtime.h", *names))
    return ctypes.CDLL(str(compile_text(text, ARCH)))


def _places(step: Step, layout: Layout, workspace: Place) -> ctypes.Array[_Place]:
    """Return the positions of a step's arrays in the order of `struct gg_step`. ValueError if there are too many."""
    if max(len(step.reads), len(step.writes)) > MOST_ARRAYS:
        raise ValueError(f"{step.computation}: {len(step.reads)} inputs, expected at most {MOST_ARRAYS} of one kernel")
    found = [*(layout.values[name] for name in (*step.reads, *step.writes)), workspace]
    return (_Place * len(found))(*(_Place(place.base, place.at, place.before) for place in found))


def _fixed(plan: Plan, layout: Layout) -> np.ndarray:
    memory = in_large_pages(layout.fixed_bytes)
    for name, view in _constants(plan, layout, memory).items():
        view[...] = plan.network.constants[name]
    return memory


def _constants(plan: Plan, layout: Layout, memory: np.ndarray) -> dict[str, np.ndarray]:
    found = {}
    for name in layout.constants:
        array, start = plan.network.constants[name], layout.values[name].at
        found[name] = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    return found


def _dense(array: np.ndarray, threads: int, room: np.ndarray) -> np.ndarray:
    """Return the array in row-major order. Threads copy a transposed matrix, such as torch's weights, to the buffer `room`."""
    if array.flags.c_contiguous or array.ndim != 2 or array.dtype != np.float32 or not array.T.flags.c_contiguous:
        return np.ascontiguousarray(array)
    made = room[: array.size].reshape(array.shape)
    _turn()(address_of(array), address_of(made), array.shape[1], array.shape[0], ctypes.byref(runtime(threads)))
    return made


@functools.cache
def _turn() -> Any:
    turn = compiled("turn.c").gg_turn
    turn.restype, turn.argtypes = None, [*[ctypes.c_void_p] * 2, *[ctypes.c_long] * 2, ctypes.POINTER(GgRuntime)]
    return turn


def _pack(plan: Plan, kernels: Sequence[Kernel], layout: Layout, fixed: np.ndarray, threads: int) -> None:
    """Pack weights into fixed memory as the kernels read them. Kernels that pack read only the packed weights afterwards."""
    packing = {kernel.digest: entry_of(kernel, kernel.prepares) for kernel in kernels if kernel.prepacked}
    team, constants = ctypes.byref(runtime(threads)), plan.network.constants
    weights = [constants[step.reads[WEIGHTS]].size for step, kernel in zip(plan.steps, kernels, strict=True) if kernel.prepacked]
    room = np.empty(max(weights, default=0), np.float32)  # shared, because new pages take longer than copying
    for step, kernel, place in zip(plan.steps, kernels, layout.workspaces, strict=True):
        if kernel.prepacked:
            array = _dense(constants[step.reads[WEIGHTS]], threads, room)
            inputs = (ctypes.c_void_p * len(step.reads))()
            inputs[WEIGHTS] = address_of(array)
            packing[kernel.digest](inputs, None, address_of(fixed) + place.at, team)
