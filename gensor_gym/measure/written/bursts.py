"""Time bursts of calls on new inputs (a timer of `stats/timing.py`); keep some of the calls, and verify them afterwards.

A burst of n calls has n sets of inputs, and outputs filled with NaN bytes. Its time, less the time of a burst without calls, is
divided by n. Of each burst at most `PICKED` calls are picked at random after it has ended; of all picked calls at most `KEPT`
are kept, each with the same chance. So a source that does without a share f of its calls passes with a chance of about
(1 - f) ** KEPT.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_gym.measure.answers.draw import changed_words
from gensor_gym.measure.answers.expectation import FULL_FLOPS, SAMPLES, expected_of
from gensor_gym.measure.written.controlled import Controlled
from gensor_gym.measure.written.inputs import FreshInputs
from gensor_gym.measure.written.layout import Region, intact
from gensor_gym.operators.inputs import decode
from gensor_gym.operators.types import ARRAY_DTYPE, Operator

PICKED, KEPT = 4, 64
KEPT_BYTES = 256 << 20
"""Largest number of bytes of the kept calls, unless there are three or fewer."""
WHOLE = 2
"""Number of kept calls whose outputs are compared with a reference as a whole. Some random elements of the others are."""
_FILL = 1 << 16
"""Number of NaN bytes that are copied at once."""
_SMALL_FLOPS = 5e5
"""Largest number of operations of a reference that is computed as a whole for each kept call. It takes 0.3 ms (Zen 4)."""
_TERMS = 1 << 15
"""Number of terms of the sums that are computed for the random elements of a kept call. There are 4 to 64 elements."""


@dataclass(frozen=True)
class Call:
    """Inputs and outputs of one call, and a message about damage to inputs or guard words (empty if none)."""

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]
    damage: str


class Bursts:
    """Times a kernel in a controlled process, and keeps some calls."""

    def __init__(self, op: Operator, process: Controlled, fresh: FreshInputs, least: float = 0.0) -> None:
        """Time calls of an operator's kernel. `least` are seconds in which no kernel can compute it."""
        self._op, self._process, self._fresh = op, process, fresh
        layout = process.layout
        self._places = [_table([slot[i] for slot in layout.inputs]) for i in range(len(op.inputs))]
        self._filled = [np.concatenate([_pieces(region) for region in slot]) for slot in layout.outputs]
        self._nan = np.full(_FILL, 0xFF, np.uint8)
        self._rng = np.random.default_rng()
        self._most = max(3, min(KEPT, KEPT_BYTES // sum(r.nbytes for r in (*layout.inputs[0], *layout.outputs[0]))))
        self._picked, self._least = 0, least
        self.kept: list[Call] = []

    def time(self, calls: int) -> float:
        """Call the kernel on new inputs each time; return the total seconds without those of the hand-overs.

        They are at least `least` for each call, so that samples of a source that computes nothing have few calls.
        """
        seconds, slots = 0.0, self._process.layout.slots
        for first in range(0, calls, slots):
            count = min(slots, calls - first)
            given = self._fresh.draw(count)
            seconds += self.run(given)
            for slot in self._rng.choice(count, min(PICKED, count), replace=False):
                self._pick(given, int(slot))
        return max(seconds, calls * self._least)

    def run(self, given: list[np.ndarray]) -> float:
        """Call the kernel once on each of some inputs, arrays [calls, *shape]. Return the seconds without the hand-over."""
        count = len(given[0])
        here = [_parts(array.ctypes.data, array.nbytes // count, count, array.nbytes // count) for array in given]
        filled = np.concatenate(self._filled[:count])
        here.append(filled.copy())
        here[-1][:, 0] = self._nan.ctypes.data
        self._process.copy(True, np.concatenate(here), np.concatenate([*(table[:count] for table in self._places), filled]))
        return max(0.0, self._process.burst(count) - self._process.hand_over)

    def call(self, given: list[np.ndarray], slot: int) -> Call:
        """Read what a call of the last burst has left in a slot."""
        layout, inputs = self._process.layout, tuple(array[slot].copy() for array in given)
        damage = ""
        for number, (region, sent) in enumerate(zip(layout.inputs[slot], inputs, strict=True)):
            pages = self._read(region)
            if not intact(region, pages):
                damage = f"written outside the buffer of input {number}"
            elif not _same(_data(region, pages), sent.reshape(-1).view(np.uint8)):
                damage = changed_words(number)
        outputs = []
        for region, tensor in zip(layout.outputs[slot], self._op.outputs, strict=True):
            pages = self._read(region)
            damage = damage if intact(region, pages) else "written outside the buffer of output"
            outputs.append(_data(region, pages).view(ARRAY_DTYPE[tensor.dtype]).reshape(tensor.shape))
        if not intact(layout.workspace, self._read(layout.workspace)):
            damage = "written outside the buffer of workspace"
        return Call(inputs, tuple(outputs), damage)

    def fault(self) -> str:
        """Verify the kept calls. Return a message about the first wrong one; empty if all are right."""
        order = self._rng.permutation(len(self.kept))
        return next((fault for number in order if (fault := self._fault_of(self.kept[number], number < WHOLE))), "")

    def _fault_of(self, call: Call, whole: bool) -> str:
        if call.damage:
            return call.damage
        terms = max(1, int(np.prod([self._op.extents[axis] for axis in self._op.reduce])))
        samples = SAMPLES if whole else max(4, min(64, _TERMS // terms))
        draw = expected_of(self._op, call.inputs, self._rng, FULL_FLOPS if whole else _SMALL_FLOPS, samples)
        return draw.fault(decode(call.outputs[0], self._op.output.dtype))

    def _pick(self, given: list[np.ndarray], slot: int) -> None:
        """Keep a call with the chance that all picked calls have (reservoir sampling)."""
        self._picked += 1
        place = len(self.kept) if len(self.kept) < self._most else int(self._rng.integers(self._picked))
        if place >= self._most:
            return
        call = self.call(given, slot)
        self.kept[place : place + 1] = [call]

    def _read(self, region: Region) -> np.ndarray:
        """Return the pages of a buffer, uint8 [region.size]."""
        content = np.empty(region.size, np.uint8)
        here = np.array([[content.ctypes.data, content.nbytes]], np.uint64)
        self._process.copy(False, here, np.array([[region.start, region.size]], np.uint64))
        return content


def _data(region: Region, pages: np.ndarray) -> np.ndarray:
    """Return a buffer's data, uint8 [region.nbytes], of the content of its pages."""
    first = region.place - region.start
    return pages[first : first + region.nbytes].copy()


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays uint8 [bytes] are equal, compared in words of 8 bytes if they are whole."""
    word = np.uint64 if one.nbytes % 8 == 0 else np.uint8
    return np.array_equal(one.view(word), other.view(word))


def _table(regions: list[Region]) -> np.ndarray:
    """Return places and numbers of bytes of buffers, uint64 [buffers, 2]."""
    return np.array([[region.place, region.nbytes] for region in regions], np.uint64)


def _pieces(region: Region) -> np.ndarray:
    """Return places and numbers of bytes of a buffer's data in pieces of at most `_FILL` bytes, uint64 [pieces, 2]."""
    first = np.arange(0, region.nbytes, _FILL)
    return np.stack([region.place + first, np.minimum(_FILL, region.nbytes - first)], axis=1).astype(np.uint64)


def _parts(address: int, nbytes: int, count: int, step: int) -> np.ndarray:
    """Return `count` parts of `nbytes` bytes, uint64 [count, 2]: the first at `address`, the next `step` bytes further."""
    found = np.full((count, 2), nbytes, np.uint64)
    found[:, 0] = address + step * np.arange(count)
    return found
