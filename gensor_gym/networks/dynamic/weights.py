"""Memory for the weights of several networks of one module, in which equal weights are kept once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.memory import ALIGNMENT, in_large_pages
from gensor_gym.networks.arena import rounded
from gensor_gym.networks.layout import Base, Layout, Place
from gensor_gym.networks.plan import Plan
from gensor_gym.operators.traits import WEIGHTS

_Part = tuple[int, int, int, int]
"""Start and size of a part of the memory, and the first and last offset in it whose bytes were written, plus 1."""


class SharedWeights:
    """Constants and packed weights of several networks. Their calls need one lock, because they share scratch."""

    def __init__(self, networks: int) -> None:
        """Prepare to hold the weights of a number of networks; the largest comes first."""
        self.networks, self.memory, self.end = networks, np.empty(0, np.uint8), 0
        self._known: dict[str, list[_Part]] = {}

    def place(
        self, plan: Plan, kernels: Sequence[Kernel], layout: Layout, fixed: np.ndarray, again: np.ndarray
    ) -> tuple[Layout, np.ndarray]:
        """Move a network's fixed memory here. Return its layout, and the memory.

        `fixed` was zero before its weights were packed, `again` had all bits set, so that bytes are equal where packing writes.
        A network with memory that calls must find zero, or for which there is no room, stays where it is.
        """
        if not len(self.memory):
            self.memory = in_large_pages(self.networks * layout.fixed_bytes)
        if any(kernel.cleared_bytes for kernel in kernels) or self.end + layout.fixed_bytes > len(self.memory):
            return layout, fixed
        starts = {}
        for name in layout.constants:
            at, size = layout.values[name].at, plan.network.constants[name].nbytes
            starts[at] = self._kept(name, fixed[at : at + size], 0, size)
        values = {name: self._moved(place, starts) for name, place in layout.values.items()}
        spaces = []
        for step, kernel, place in zip(plan.steps, kernels, layout.workspaces, strict=True):
            if place.base is Base.FIXED:
                part, other = (some[place.at : place.at + rounded(kernel.workspace_bytes)] for some in (fixed, again))
                written = np.flatnonzero(part == other)
                first, last = (int(written[0]), int(written[-1]) + 1) if len(written) else (0, 0)
                name = step.reads[WEIGHTS] if len(written) == last - first else ""  # written bytes with gaps are not shared
                place = replace(place, at=self._kept(name, part, first, last))
            spaces.append(place)
        return replace(layout, values=values, workspaces=tuple(spaces)), self.memory

    def _moved(self, place: Place, starts: dict[int, int]) -> Place:
        return replace(place, at=starts.get(place.at, 0)) if place.base is Base.FIXED else place

    def _kept(self, name: str, part: np.ndarray, first: int, last: int) -> int:
        """Return where the memory has a part with these bytes from `first` to `last`; add the part if it has none.

        The bytes may have more scratch before and behind them there.
        """
        for start, size, begin, end in self._known.get(name, []):
            same = end - begin == last - first and begin % ALIGNMENT == first % ALIGNMENT
            has_room = first <= begin and len(part) - first <= size - begin
            if name and same and has_room and np.array_equal(self.memory[start + begin : start + end], part[first:last]):
                return start + begin - first
        start, self.end = self.end, self.end + rounded(len(part))
        self.memory[start : start + len(part)] = part
        self._known.setdefault(name, []).append((start, len(part), first, last))
        return start
