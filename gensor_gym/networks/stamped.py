"""Times each kernel of a loaded network, within calls of the network and in isolation."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gensor_gym.codegen import runtime as rooms
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.c import entry_of
from gensor_gym.codegen.runtime.compile import compile_text
from gensor_gym.codegen.runtime.memory import address_of, aligned, workspace_of
from gensor_gym.codegen.runtime.threads import ARCH, GgCall, runtime
from gensor_gym.networks.layout import Base, Place
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.plan import Plan
from gensor_gym.operators.types import ARRAY_DTYPE


class StampedNetwork:
    """A loaded network with given inputs, whose kernels can be run in any order and timed.

    The kernels use memory laid out as in a call. A clock is read between them; kernels of one loop (`networks.loops`) run in
    order. Use it from one thread at a time, and not while the network is called elsewhere, because packed weights and their
    scratch memory belong to the network.
    """

    def __init__(
        self, plan: Plan, kernels: Sequence[Kernel], function: NetworkFunction, inputs: Sequence[Any], threads: int
    ) -> None:
        """Prepare the calls of all kernels. `plan` and `kernels` are those of `function`, which accepts `inputs`.

        ValueError for `inputs` that do not fit the network.
        """
        self.outputs = tuple(aligned(value.shape, np.dtype(ARRAY_DTYPE[value.dtype])) for value in plan.network.outputs)
        """Outputs of the network, which are valid after all kernels have run in order; bfloat16 as uint16."""
        self._inputs = function.signature.inputs(inputs, copy=False)
        self._layout, self._fixed = function.layout, function.fixed
        self._workspace, team = workspace_of(function.layout.workspace_bytes), runtime(threads)
        self._calls = (GgCall * len(kernels))()
        self._kept: list[Any] = [team]
        for number, (step, kernel) in enumerate(zip(plan.steps, kernels, strict=True)):
            main: Any = entry_of(kernel, kernel.launches[0].entry)
            entry = ctypes.cast(main, ctypes.c_void_p)
            reads, writes = (self._addresses(names) for names in (step.reads, step.writes))
            made = writes[0] if len(step.writes) == 1 else ctypes.addressof(writes)
            own = self._address(self._layout.workspaces[number])
            self._calls[number] = GgCall(entry, ctypes.addressof(reads), made, own, ctypes.addressof(team))
            self._kept += [reads, writes]

    def seconds(self, order: Sequence[int]) -> np.ndarray:
        """Run the kernels with the indices in `order`. Return the seconds of each call, float64 [len(order)].

        Outputs are right only if each kernel's inputs were computed before and not overwritten: if kernels run in the plan's
        order, or each kernel runs several times before the next.
        """
        numbers = np.ascontiguousarray(order, dtype=np.int64)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self._calls):
            raise ValueError(f"order {list(order)}: expected numbers of kernels, 0 to {len(self._calls) - 1}")
        times = np.zeros(len(numbers) + 1, np.int64)
        _stamped()(self._calls, address_of(numbers), len(numbers), address_of(times))
        return np.diff(times) * 1e-9

    def in_context(self, passes: int) -> np.ndarray:
        """Run the whole network `passes` times. Return the seconds of every kernel in each run, float64 [passes, kernels]."""
        order = range(len(self._calls))
        return np.array([self.seconds(order) for _ in range(passes)]).reshape(passes, len(self._calls))

    def isolated(self, turn: float) -> list[np.ndarray]:
        """Time every kernel in isolation. Return the seconds of its repeated calls, one array for each kernel.

        Each is called for about `turn` seconds and at least three times. An equal number of calls runs first to fill the caches,
        and is not counted.
        """
        found = []
        for number in range(len(self._calls)):
            (once,) = self.seconds([number])
            count = int(np.clip(turn / once, 3, 10_000))
            found.append(self.seconds([number] * 2 * count)[count:])
        return found

    def _addresses(self, names: Sequence[str]) -> ctypes.Array[ctypes.c_void_p]:
        found = [self._address(self._layout.values[name]) for name in names]
        return (ctypes.c_void_p * max(1, len(found)))(*found)

    def _address(self, place: Place) -> int:
        if place.base is Base.INPUT:
            return address_of(self._inputs[place.at]) + place.before
        if place.base is Base.OUTPUT:
            return address_of(self.outputs[place.at]) + place.before
        return address_of(self._workspace if place.base is Base.WORKSPACE else self._fixed) + place.at + place.before


@functools.cache
def _stamped() -> Any:
    folder = Path(rooms.__path__[0])
    text = folder.joinpath("runtime.h").read_text("utf-8") + folder.joinpath("stamps.c").read_text("utf-8")
    stamped = ctypes.CDLL(str(compile_text(text, ARCH))).gg_stamped
    stamped.restype, stamped.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p]
    return stamped
