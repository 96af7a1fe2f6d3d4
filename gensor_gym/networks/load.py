"""A plan and its kernels as one function in this process: no Python between kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gensor_gym.codegen import runtime as rooms
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.c import NativeFunction, entry_of
from gensor_gym.codegen.runtime.compile import compile_text
from gensor_gym.codegen.runtime.memory import address_of, workspace_of
from gensor_gym.codegen.runtime.threads import ARCH, GgRuntime, runtime
from gensor_gym.networks.layout import Layout, Place, layout_of
from gensor_gym.networks.plan import Plan
from gensor_gym.networks.steps import Step

MOST_ARRAYS = 64
"""Of one kernel: `GG_MOST` of `network.c`."""


class _Place(ctypes.Structure):
    """`struct gg_place`."""

    _fields_ = [("base", ctypes.c_long), ("at", ctypes.c_size_t)]


class _Step(ctypes.Structure):
    """`struct gg_step`."""

    _fields_ = [("entry", ctypes.c_void_p), ("places", ctypes.c_void_p), ("inputs", ctypes.c_long), ("outputs", ctypes.c_long)]


class _Network(ctypes.Structure):
    """`struct gg_network`; a mutex takes 40 bytes on Linux for 64-bit processors."""

    _fields_ = [
        ("runtime", GgRuntime), ("steps", ctypes.c_void_p), ("count", ctypes.c_long), ("fixed", ctypes.c_void_p),
        ("outputs", ctypes.c_long), ("exclusive", ctypes.c_long), ("busy", ctypes.c_char * 64),
    ]  # fmt: skip


class NetworkFunction(NativeFunction):
    """A network that was loaded: called as a kernel is, with arrays of NumPy or of whatever speaks DLPack.

    Safe from several threads; those of a network with packed weights wait for one another.
    """

    def __init__(self, plan: Plan, kernels: Sequence[Kernel], threads: int, mode: str = "hot") -> None:
        """Lay memory out, load the kernels, pack weights once; ValueError for a kernel of too many arrays."""
        self.plan, self.kernels, self.layout = plan, tuple(kernels), layout_of(plan, kernels, mode)
        self._fixed = _fixed(plan, self.layout)
        self._state, self._kept = self._structure(threads)
        _prepare(plan, kernels, self.layout, self._fixed, threads)
        super().__init__(plan.network, _library().gg_network_run, self._state, self.layout.workspace_bytes)

    def _structure(self, threads: int) -> tuple[_Network, Any]:
        """The state that `network.c` reads, and what it points to."""
        steps = (_Step * len(self.kernels))()
        kept: list[Any] = [steps]
        for place, (step, kernel) in enumerate(zip(self.plan.steps, self.kernels, strict=True)):
            places = _places(step, self.layout, self.layout.workspaces[place])
            main: Any = entry_of(kernel, kernel.launches[0].entry)
            kept += [places, main]
            counts = len(step.reads), len(step.writes)
            steps[place] = _Step(ctypes.cast(main, ctypes.c_void_p), ctypes.addressof(places), *counts)
        team, exclusive = runtime(threads), any(kernel.prepacked for kernel in self.kernels)
        state = _Network(
            GgRuntime(team.threads, team.parallel), ctypes.addressof(steps), len(steps), address_of(self._fixed),
            len(self.plan.network.outputs), exclusive,
        )  # fmt: skip
        _library().gg_network_init(ctypes.byref(state))
        return state, kept


def _library() -> ctypes.CDLL:
    """`network.c`, compiled at the first call on a machine."""
    folder = Path(rooms.__path__[0])
    text = folder.joinpath("runtime.h").read_text("utf-8") + folder.joinpath("network.c").read_text("utf-8")
    return ctypes.CDLL(str(compile_text(text, ARCH)))


def _places(step: Step, layout: Layout, workspace: Place) -> ctypes.Array[_Place]:
    """Places of a step's arrays, in the order of `struct gg_step`."""
    if max(len(step.reads), len(step.writes)) > MOST_ARRAYS:
        raise ValueError(f"{step.computation}: {len(step.reads)} inputs, expected at most {MOST_ARRAYS} of one kernel")
    found = [*(layout.values[name] for name in (*step.reads, *step.writes)), workspace]
    return (_Place * len(found))(*(_Place(place.base, place.at) for place in found))


def _fixed(plan: Plan, layout: Layout) -> np.ndarray:
    """Memory that stays, with the constants in it."""
    memory = workspace_of(layout.fixed_bytes)
    for name, array in plan.network.constants.items():
        start = layout.values[name].at
        memory[start : start + array.nbytes] = array.reshape(-1).view(np.uint8)
    return memory


def _prepare(plan: Plan, kernels: Sequence[Kernel], layout: Layout, fixed: np.ndarray, threads: int) -> None:
    """Have every kernel that keeps packed weights pack them, which computes once of zeros."""
    constants = plan.network.constants
    for step, kernel, place in zip(plan.steps, kernels, layout.workspaces, strict=True):
        if not kernel.prepacked:
            continue
        inputs = [
            constants[name] if name in constants else np.zeros(tensor.shape, np.float32)
            for name, tensor in zip(step.reads, kernel.operator.inputs, strict=True)
        ]
        (output,) = (np.zeros(tensor.shape, np.float32) for tensor in kernel.operator.outputs)
        addresses = (ctypes.c_void_p * len(inputs))(*map(address_of, inputs))
        workspace = address_of(fixed) + place.at
        entry_of(kernel, kernel.prepares)(addresses, address_of(output), workspace, ctypes.byref(runtime(threads)))
