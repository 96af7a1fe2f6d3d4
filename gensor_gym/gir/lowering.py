"""Lower a row nest, with a memory level for each value that several passes read, to instruction graphs of kernels."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from gensor_gym.dataflow.expressions import Expression
from gensor_gym.gir.igraph import Buffer, Instruction, KernelGraph, Pass, Slice
from gensor_gym.gir.nest import Access, Cell, RowNest
from gensor_gym.gir.placement import Fetch, Level, Passes, Placement, passes_of

PAD = 16
"""Number of elements of the widest vector; rows of buffers are padded to a multiple of it."""


@dataclass(frozen=True)
class Lowered:
    """The instruction graphs of a row nest's kernels, in launch order, for one choice of memory levels (`placement`)."""

    nest: RowNest
    placement: Placement
    kernels: tuple[KernelGraph, ...]
    fault: str
    """Reason why no code can be written for the memory levels in `placement`; empty if code can be written."""

    @property
    def spilled(self) -> tuple[Buffer, ...]:
        """Tensors in DRAM that one kernel writes for a later kernel to read.

        Inputs and outputs of the operator are not among them.
        """
        own = {value.name for value in self.nest.graph.inputs} | set(self.nest.graph.returns)
        found = dict.fromkeys(buffer for kernel in self.kernels for buffer in kernel.buffers(Level.DRAM))
        return tuple(buffer for buffer in found if buffer.name not in own)


def lower(nest: RowNest, placement: Placement) -> Lowered:
    """Lower a row nest (a fused operator as loops over rows and columns) to instruction graphs.

    `placement` has the memory level of each value that several passes read. An illegal placement is lowered too; then
    `Lowered.fault` says why it is illegal.
    """
    passes = passes_of(nest, placement)
    return Lowered(passes.nest, placement, _Lowering(passes.nest, passes).kernels(), passes.fault)


@dataclass
class _Lowering:
    nest: RowNest
    passes: Passes
    homes: dict[str, int] = field(default_factory=dict)
    """Name of a scalar of a row -> index of the kernel that computes it."""

    def kernels(self) -> tuple[KernelGraph, ...]:
        ends = sorted({*self.passes.cuts, self.nest.passes - 1})
        starts = [0, *(end + 1 for end in ends[:-1])]
        found = [self._kernel(number, start, end) for number, (start, end) in enumerate(zip(starts, ends, strict=True))]
        return tuple(self._with_kept_numbers(found))

    def _kernel(self, number: int, start: int, end: int) -> KernelGraph:
        """Return the kernel of passes `start` to `end`.

        Scalars of rows that it reads from earlier kernels are not loaded yet; `_with_kept_numbers` adds these loads.
        """
        passes = [Pass(tuple(self._along(p)), tuple(self._once(number, p + 1))) for p in range(start, end + 1)]
        return KernelGraph(tuple(self._once(number, 0)) if start == 0 else (), tuple(passes))

    def _along(self, number: int) -> list[Instruction]:
        done = [self._fetch(fetch) for fetch in self.passes.fetches[number]]
        kept = {fetch.name: fetch.level for fetch in self.passes.keeps[number]}
        for name in self.passes.makes[number]:
            cell = self.nest.cell[name]
            done.append(self._load(cell) if cell.is_load else self._map(cell))
            done += [self._keep(name, kept[name])] if name in kept else []
            done += [self._write(name, to) for to in self._writes(name) if self.nest.pass_of_store(name) == number]
        for cell in self.nest.cells:
            if cell.is_reduction and cell.stage - 1 == number:
                source = self.nest.cell[cell.sources[0]]
                held = ((source.name, self._held(source)),)
                done.append(Instruction("reduce", cell.name, self._held(cell), held, cell.made))  # type: ignore[arg-type]
        return _sunk(done)

    def _once(self, kernel: int, stage: int) -> list[Instruction]:
        done = []
        for cell in self.nest.cells:
            if cell.wide or cell.stage != stage:
                continue
            self.homes.setdefault(cell.name, kernel)
            if not cell.is_reduction:
                done.append(self._load(cell) if cell.is_load else self._map(cell))
            done += [self._write(cell.name, to) for to in self._writes(cell.name)]
        return done

    def _with_kept_numbers(self, kernels: list[KernelGraph]) -> list[KernelGraph]:
        """Add the stores and loads that pass scalars of rows from kernel to kernel.

        The kernel that computes a scalar for a later kernel stores it to DRAM, and the later kernel loads it before its passes.
        """
        needed = [self._numbers_read(kernel) for kernel in kernels]
        for number, names in enumerate(needed):
            before = [self._fetch_number(name) for name in names if self.homes[name] < number]
            kernels[number] = dataclasses.replace(kernels[number], before=(*before, *kernels[number].before))
        for number, kernel in enumerate(kernels):
            later = dict.fromkeys(name for names in needed[number + 1 :] for name in names if self.homes[name] == number)
            if later:
                last = kernel.passes[-1]
                kept = tuple(self._keep_number(name) for name in later)
                passes = (*kernel.passes[:-1], Pass(last.along, (*last.after, *kept)))
                kernels[number] = dataclasses.replace(kernel, passes=passes)
        return kernels

    def _numbers_read(self, kernel: KernelGraph) -> list[str]:
        read = (name for one in kernel.instructions() for name, _ in one.sources)
        return list(dict.fromkeys(name for name in read if name in self.homes))

    def _held(self, cell: Cell) -> Slice:
        return Slice(Buffer(cell.name, Level.REG, 0), cell.wide)

    def _load(self, cell: Cell) -> Instruction:
        assert isinstance(cell.made, Access)
        return Instruction("move", cell.name, self._held(cell), ((cell.name, self._in_tensor(cell.made, cell.wide)),))

    def _map(self, cell: Cell) -> Instruction:
        sources = tuple((name, self._held(self.nest.cell[name])) for name in cell.sources)
        assert isinstance(cell.made, Expression)
        return Instruction("map", cell.name, self._held(cell), sources, cell.made)

    def _writes(self, name: str) -> list[Access]:
        return [to for cell, to in self.nest.stores if cell == name]

    def _write(self, name: str, to: Access) -> Instruction:
        cell = self.nest.cell[name]
        still = zip(to.rows, self.nest.row_extents, strict=True)
        repeats = to.chosen is None  # whereas a scatter joins every row
        once = tuple(axis for axis, (step, extent) in enumerate(still) if step == 0 and extent > 1 and repeats)
        return Instruction("move", name, self._in_tensor(to, cell.wide), ((name, self._held(cell)),), once=once)

    def _fetch(self, fetch: Fetch) -> Instruction:
        held = self._held(self.nest.cell[fetch.name])
        return Instruction("move", fetch.name, held, ((fetch.name, self._between(fetch.name, fetch.level)),))

    def _keep(self, name: str, level: Level) -> Instruction:
        return Instruction("move", name, self._between(name, level), ((name, self._held(self.nest.cell[name])),))

    def _fetch_number(self, name: str) -> Instruction:
        held = self._held(self.nest.cell[name])
        return Instruction("move", name, held, ((name, self._between(name, Level.DRAM)),))

    def _keep_number(self, name: str) -> Instruction:
        return Instruction("move", name, self._between(name, Level.DRAM), ((name, self._held(self.nest.cell[name])),))

    def _in_tensor(self, access: Access, wide: bool) -> Slice:
        graph = self.nest.graph
        return Slice(Buffer(access.tensor, Level.DRAM, graph.values[access.tensor].size), wide, access)

    def _between(self, name: str, level: Level) -> Slice:
        """Return the slice of the buffer that keeps the value `name` from one pass to a later pass.

        A buffer in DRAM holds all rows, any other buffer one row.

        Names of buffers contain a dot, which names of tensors do not.
        """
        wide = self.nest.cell[name].wide
        pitch = -(-self.nest.columns // PAD) * PAD if wide else 1
        if level is not Level.DRAM:
            return Slice(Buffer(f"{name}.row", level, pitch, padded=True), wide)
        extents, parts = self.nest.row_extents, 1 if wide else self.nest.parts
        strides = _row_strides(extents, pitch)
        if parts > 1:  # a narrow cell has the same value in all parts of a row
            strides = (*_row_strides(extents[:-1], pitch), 0)
        access = Access(f"{name}.all", 0, strides, 1 if wide else 0)
        return Slice(Buffer(f"{name}.all", Level.DRAM, self.nest.rows // parts * pitch, padded=wide), wide, access)


def _sunk(done: list[Instruction]) -> list[Instruction]:
    """Restrict each load or computation to the rows in which its readers run.

    This applies if all readers run in the same rows (`Instruction.once`).
    """
    wanted: dict[str, set[tuple[int, ...]]] = {}
    found: list[Instruction] = []
    for one in reversed(done):
        if one.kind in ("move", "map") and one.target.is_held and len(axes := wanted.get(one.cell, set())) == 1:
            one = dataclasses.replace(one, once=next(iter(axes)))
        for name, part in one.sources:
            if part.is_held:
                wanted.setdefault(name, set()).add(one.once)
        found.insert(0, one)
    return found


def _row_strides(extents: tuple[int, ...], pitch: int) -> tuple[int, ...]:
    strides: list[int] = []
    for extent in reversed(extents):
        strides.insert(0, pitch)
        pitch *= extent
    return tuple(strides)
