"""A second implementation of the instruction graph: NumPy runs it row by row, instruction by instruction, and counts elements.

What a unit holds is forgotten at the end of a step, what lies in a buffer of the row at the end of a kernel, so that a graph that
reads what is no longer there fails with a KeyError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gensor_gym.dataflow.expressions import Constant, Expression, Operand
from gensor_gym.gir.igraph import Instruction, KernelGraph, Slice
from gensor_gym.gir.lowering import Lowered
from gensor_gym.gir.nest import Online
from gensor_gym.gir.placement import Level
from tests.support.dataflows import NUMPY

Moved = Counter[tuple[int, int, str]]
"""(kernel, pass, what) -> elements of all rows; what is `read TENSOR`, `written TENSOR`, `scratch` or `registers`."""


@dataclass
class Interpreter:
    """One lowered nest with its tensors, flat, in float32."""

    lowered: Lowered
    tensors: dict[str, np.ndarray]
    moved: Moved = field(default_factory=Counter)

    def run(self) -> None:
        """All kernels, all rows."""
        nest = self.lowered.nest
        for number, kernel in enumerate(self.lowered.kernels):
            for row in np.ndindex(*nest.row_extents[:-1]) if nest.parts > 1 else ():
                _in_parts([_Step(self, kernel, number, (*row, part)) for part in range(nest.parts)])
            for row in np.ndindex(*nest.row_extents) if nest.parts == 1 else ():
                _Step(self, kernel, number, row).run()


@dataclass
class _Step:
    """One row in one kernel."""

    whole: Interpreter
    kernel: KernelGraph
    number: int
    row: tuple[int, ...]
    held: dict[str, np.ndarray] = field(default_factory=dict)
    buffers: dict[str, np.ndarray] = field(default_factory=dict)
    taken: dict[str, np.ndarray] = field(default_factory=dict)
    """What each reduction went along."""

    def run(self) -> None:
        """Once a row, then pass after pass: wide values do not outlive their pass."""
        self._do(self.kernel.before, -1)
        for place, one in enumerate(self.kernel.passes):
            numbers = dict(self.held)
            self._do(one.along, place)
            made = {i.cell for i in one.along if i.kind == "reduce"}
            self.held = numbers | {name: self.held[name] for name in made}
            self._do(one.after, place)

    def _do(self, instructions: Sequence[Instruction], place: int) -> None:
        for one in instructions:
            if any(self.row[axis] for axis in one.once):
                continue
            given = {name: self._read(part, name, place) for name, part in one.sources}
            if one.kind == "map":
                assert not isinstance(one.body, str) and one.body is not None
                found = np.asarray(_scalar(one.body, given), np.float32)
            elif one.kind == "reduce":
                (source,) = given.values()
                self.taken[one.cell] = source
                found = self._reduced(one.body, source)
            else:
                (found,) = given.values()
            wanted = (self._columns(),) if one.target.wide else ()
            found = np.broadcast_to(found, wanted) if one.kind == "map" else found
            assert found.shape == wanted, f"{one}: shape {found.shape}, expected {wanted}"
            self._write(one.target, one.cell, found, place)

    def _reduced(self, body: object, source: np.ndarray) -> np.ndarray:
        if isinstance(body, Online):
            return running_sum(source, self.held[body.top])
        return np.asarray(source.sum(dtype=np.float32) if body == "sum" else source.max(), np.float32)

    def _read(self, part: Slice, name: str, place: int) -> np.ndarray:
        if part.access is not None:
            where = self._where(part)
            self._count(place, f"read {part.buffer.name}", where)
            return self.whole.tensors[part.buffer.name][where]
        if part.buffer.elements:
            self._count(place, _word(part), self.buffers[part.buffer.name])
            return self.buffers[part.buffer.name]
        return self.held[name]

    def _write(self, part: Slice, name: str, found: np.ndarray, place: int) -> None:
        if part.access is not None:
            where = self._where(part)
            self._count(place, f"written {part.buffer.name}", where)
            self.whole.tensors[part.buffer.name][where] = found
        elif part.buffer.elements:
            self._count(place, _word(part), found)
            self.buffers[part.buffer.name] = found
        else:
            self.held[name] = found

    def _where(self, part: Slice) -> np.ndarray:
        """Places of the elements of a slice in its tensor."""
        assert part.access is not None and part.buffer.level is Level.DRAM
        start = part.access.offset + int(np.dot(part.access.rows, self.row)) if self.row else part.access.offset
        found: np.ndarray = start + part.access.column * np.arange(self._columns() if part.wide else 1)
        assert found.min() >= 0 and found.max() < part.buffer.elements, f"{part} leaves its buffer at row {self.row}"
        return found if part.wide else found.reshape(())

    def _columns(self) -> int:
        nest = self.whole.lowered.nest
        return nest.last if nest.last and self.row[-1] == nest.parts - 1 else nest.columns

    def _count(self, place: int, what: str, elements: np.ndarray) -> None:
        self.whole.moved[self.number, place, what] += int(np.size(elements)) if np.ndim(elements) else 0


def _in_parts(steps: list[_Step]) -> None:
    """All parts of a row; what comes after them is done once, of what a reduction makes of all their elements."""
    (one,) = steps[0].kernel.passes
    for step in steps:
        step._do(step.kernel.before, -1)
        numbers = dict(step.held)
        step._do(one.along, 0)
        step.held = numbers
    for reduction in (i for i in one.along if i.kind == "reduce"):
        whole = np.concatenate([step.taken[reduction.cell] for step in steps])
        steps[0].held[reduction.cell] = steps[0]._reduced(reduction.body, whole)
    steps[0]._do(one.after, 0)


def running_sum(source: np.ndarray, top: np.ndarray) -> np.ndarray:
    """The sum of exp(source - top) by pieces of five, of which each knows the largest number of those before alone."""
    base, total = np.float32(np.finfo(np.float32).min), np.float32(0)
    with np.errstate(all="ignore"):
        for start in range(0, len(source), 5):
            piece = source[start : start + 5]
            grown = np.maximum(base, piece.max())
            total = np.float32(total * np.exp(base - grown) + np.exp(piece - grown).sum(dtype=np.float32))
            base = grown
        return np.asarray(total * np.exp(base - top), np.float32)


def _word(part: Slice) -> str:
    return "scratch" if part.buffer.level is Level.SRAM else "registers"


def _scalar(expression: Expression, given: dict[str, np.ndarray]) -> np.ndarray:
    if isinstance(expression, Operand):
        return given[expression.name]
    if isinstance(expression, Constant):
        return np.float32(expression.value)
    with np.errstate(all="ignore"):
        found = NUMPY[expression.function](*(_scalar(part, given) for part in expression.arguments))
    return np.asarray(found, np.float32)


def interpreted(lowered: Lowered, inputs: Sequence[np.ndarray]) -> tuple[list[np.ndarray], Moved]:
    """(outputs, elements that moved) of a lowered nest for inputs."""
    graph = lowered.nest.graph
    tensors = {value.name: array.ravel() for value, array in zip(graph.inputs, inputs, strict=True)}
    tensors |= {output.name: np.full(output.size, np.nan, np.float32) for output in graph.outputs}
    tensors |= {buffer.name: np.full(buffer.elements, np.nan, np.float32) for buffer in lowered.spilled}
    run = Interpreter(lowered, tensors)
    run.run()
    return [tensors[output.name].reshape(output.shape) for output in graph.outputs], run.moved
