"""CUDA text of the body of a row nest's kernel: a block computes rows in steps, and each step makes all passes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gensor_gym.codegen.c.text import identifiers
from gensor_gym.codegen.cuda.text import Writer
from gensor_gym.codegen.gir.cuda.elements import element_of
from gensor_gym.codegen.gir.cuda.inputs import converted, joined, kept
from gensor_gym.codegen.gir.cuda.moves import Tile
from gensor_gym.codegen.gir.cuda.online import RunningSum, floored
from gensor_gym.codegen.gir.cuda.places import KernelPlaces, Workspace, parts_name
from gensor_gym.codegen.gir.cuda.sums import Fold, reduction_of
from gensor_gym.codegen.gir.cuda.where import Pointers, index_type
from gensor_gym.codegen.gir.rows import c_name
from gensor_gym.dataflow.expressions import Expression, divisors
from gensor_gym.gir.gpu.teams import WARP
from gensor_gym.gir.igraph import Instruction, Pass, Slice
from gensor_gym.gir.nest import Access, Online
from gensor_gym.gir.placement import Level


class BlockPrinter:
    """Writer of a kernel's body.

    If several blocks share a row, it also writes the body of the second launch, which joins their partial reductions.
    """

    def __init__(self, places: KernelPlaces, workspace: Workspace) -> None:
        self.places, self.workspace, self.shape = places, workspace, places.shape
        self.nest, self.graph = places.program.nest, places.graph
        self.index, self.element = index_type(self.nest), element_of(self.nest)
        cells = [cell.name for cell in self.nest.cells]
        self.names = dict(zip(cells, identifiers(f"v_{name}" for name in cells), strict=True))
        accesses = dict.fromkeys(s.access for i in self.graph.instructions() for s in _slices(i) if s.access is not None)
        self.pointers = Pointers.of(self.nest, list(accesses))
        self.written = {i.target.access for i in self.graph.instructions() if i.target.access is not None}
        self.tile = Tile(places, self.pointers)
        self.inverses: dict[str, str] = {}

    # Bodies of the two launches

    def body(self) -> str:
        """Return the CUDA text of the main launch's body."""
        out, shape, item = Writer(depth=1), self.shape, self.element.c
        self._tensors(out)
        shared = shape.parts > 1
        out.line("const int lane = threadIdx.x % LANES, place = threadIdx.x / LANES;")
        out.line(f"const {self.index} task = blockIdx.x{f' / {shape.parts}' if shared else ''};")
        if shared:
            out.line(f"const int part = blockIdx.x % {shape.parts};")
        with out.block(self._turns(out)):
            if self.nest.scattered is None:
                self._first_row(out)
            self._row(out, "", "place")
            if self.places.turned:
                self._row(out, "side_", "threadIdx.x % ROWS", self.places.turned)
            for buffer in self.graph.buffers(Level.SRAM):
                at = f"shared + {self.places.shared[buffer.name]} + place * {buffer.elements}"
                out.line(f"{item} *const {c_name(buffer.name)} = {at};")
            for buffer in self.graph.buffers(Level.REG):
                if buffer.elements:
                    out.line(f"{item} {c_name(buffer.name)}[{shape.steps}][TILE][VECTOR];")
            self._numbers(out, self.graph.before, ["here", "lane == 0", *(["part == 0"] if shared else [])])
            for one in self.graph.passes:
                self._pass(out, one)
        return out.text

    def _turns(self, out: Writer) -> str:
        """Return the head of a block's loop over its steps of rows.

        A scatter's loop goes through all rows. A team computes those whose ids select its rows of the table.
        """
        if self.nest.scattered is None:
            return f"for (int turn = 0; turn < {self.shape.turns}; ++turn)"
        out.line(f"const long long owners = {self.places.blocks // self.shape.parts}ll * ROWS, owner = task * ROWS + place;")
        return f"for ({self.index} row = 0; row < {self.nest.rows}; ++row)"

    def _first_row(self, out: Writer) -> None:
        shape = self.shape
        out.line(f"const {self.index} first = (task * {shape.turns} + turn) * ROWS;")
        out.line(f"if (first >= {self.nest.rows}) break;")
        if shape.turns > 1 and shape.lanes > WARP and self.places.reductions:
            out.line("if (turn > 0) __syncthreads();  // sums of the step before are still read")

    def finish(self) -> str:
        """Return the CUDA text of the second launch's body.

        A block joins the partial results of one row, then executes the row's scalar instructions.
        """
        out, (one,) = Writer(depth=1), self.graph.passes
        threads = self.shape.finish_threads
        self._tensors(out)
        out.line(f"const {self.index} row = blockIdx.x;")
        self.pointers.write(out, "row", self.written)
        self._numbers(out, tuple(i for i in self.graph.before if i.target.access is None), [])
        at = {i.cell: f"(shared + {n * (threads // WARP)})" for n, i in enumerate(self.places.reductions)}
        for reductions in _in_turn(self.places.reductions):
            for reduction in reductions:
                name, identity = self.names[reduction.cell], self.element.number(self.element.identity(reduction_of(reduction)))
                out.line(f"{self.element.c} {name} = {identity};")
                with out.block(f"for (int k = threadIdx.x; k < {self.shape.parts}; k += {threads})"):
                    out.line(f"{name} = {self._joined(reduction, name, self._part(reduction))};")
            Fold(threads, self.element, self.names, at).write(out, reductions)
        self._numbers(out, one.after, ["threadIdx.x == 0"])
        return out.text

    def _part(self, reduction: Instruction) -> str:
        """Return the CUDA text of a reduction's partial result from block `k` of the row; `k` is a variable of the text.

        The part of an online sum is rescaled to the maximum of the whole row.
        """
        place = f"static_cast<long long>(row) * {self.shape.parts} + k"
        part = f"{c_name(parts_name(reduction.cell))}[{place}]"
        if not isinstance(reduction.body, Online):
            return part
        top = reduction.body.top
        return f"{part} * exp_1({floored(f'{c_name(parts_name(top))}[{place}]')} - {self.names[top]})"

    def _tensors(self, out: Writer) -> None:
        needed = {access.tensor for access in self.pointers.names}
        needed |= {parts_name(i.cell) for i in self.places.reductions} if self.places.finishes else set()
        for name, place in self.workspace.places.items():
            if name in needed:
                start = f"reinterpret_cast<{self.element.c} *>(workspace)" if self.nest.graph.whole else "workspace"
                out.line(f"{self.element.c} *const {c_name(name)} = {start} + {place}ll;")

    def _row(self, out: Writer, prefix: str, place: str, only: tuple[Access, ...] | None = None) -> None:
        """Write declarations of a thread's row and its pointers.

        A thread past the last row uses the last row and stores nothing. `place` is C text of the row's index in the block.
        """
        if self.nest.scattered is not None:
            out.line("constexpr bool here = true;")
        else:
            out.line(f"const bool {prefix}here = first + {place} < {self.nest.rows};")
            out.line(f"const {self.index} {prefix}row = {prefix}here ? first + {place} : {self.nest.rows - 1};")
        self.pointers.write(out, f"{prefix}row", self.written, prefix, only)

    # Scalars of a row

    def _numbers(self, out: Writer, instructions: tuple[Instruction, ...], writers: list[str]) -> None:
        """Write instructions on scalars of a row.

        Every lane computes them; lanes that meet the conditions `writers` store them.
        """
        for one in instructions:
            name = self.names[one.cell]
            if one.kind == "map":
                assert isinstance(one.body, Expression)
                out.line(f"const {self.element.c} {name} = {self.element.text(one.body, self.names, {}, 1)};")
            elif one.target.access is not None:
                with out.guarded([*writers, *self.pointers.once(one.target.access)]):
                    at = f"*{self.pointers.names[one.target.access]}"
                    out.line(f"{at} = {kept(self.nest, one.target.access, joined(self.nest, one.target.access, at, name))};")
            else:
                part = one.sources[0][1]
                loaded = self.pointers.loaded(part.access, converted(self.nest, part.access, f"*{self._at(part)}"))
                out.line(f"const {self.element.c} {name} = {loaded};")

    def _at(self, part: Slice) -> str:
        return c_name(part.buffer.name) if part.access is None else self.pointers.names[part.access]

    # Passes along the columns

    def _pass(self, out: Writer, one: Pass) -> None:
        reductions = [i for i in one.along if i.kind == "reduce"]
        self._inverses(out, one)
        for reduction in reductions:
            if isinstance(reduction.body, Online):
                out.line(RunningSum(self.names[reduction.cell]).begun())
                continue
            identity = self.element.number(self.element.identity(reduction_of(reduction)))
            sums = ", ".join([identity] * self.shape.tile)
            out.line(f"{self.element.c} {self._sum(reduction)}[TILE] = {{{sums}}};")
        whole = any(buffer.elements for buffer in self.graph.buffers(Level.REG))
        start, stop = ("0", str(self.shape.steps))
        if self.shape.parts > 1:
            start, stop = f"part * {self.shape.loop}", "last_step"
            out.line(f"const int last_step = min({self.shape.steps}, (part + 1) * {self.shape.loop});")
        out.line(f"#pragma unroll{'' if whole else ' 1'}")
        with out.block(f"for (int step = {start}; step < {stop}; ++step)"):
            self._step(out, one)
        self._fold(out, reductions)
        if not self.places.finishes:
            self._numbers(out, one.after, ["here", "lane == 0"])

    def _inverses(self, out: Writer, one: Pass) -> None:
        """Write declarations of the inverses of a row's scalars that are divisors in a pass.

        A product takes a tenth of a quotient's instructions.
        """
        for i in one.along:
            inverted = i.kind == "map" and isinstance(i.body, Expression) and not self.nest.graph.whole
            for name in divisors(i.body) if inverted else ():  # type: ignore[arg-type]
                narrow = any(source == name and not part.wide for source, part in i.sources)
                if narrow and name not in self.inverses:
                    self.inverses[name] = f"{self.names[name]}_inverse"
                    out.line(f"const float {self.inverses[name]} = 1.0f / {self.names[name]};")

    def _step(self, out: Writer, one: Pass) -> None:
        loads = [a for i in one.along for _, part in i.sources if (a := part.access) in self.places.turned]
        stores = [a for i in one.along if (a := i.target.access) in self.places.turned]
        kind = self.index
        out.line(f"const {kind} first_column = static_cast<{kind}>(step) * WIDE, column = first_column + lane * VECTOR;")
        if loads:
            out.line("__syncthreads();  // tiles of the step before are still read")
            for access in dict.fromkeys(loads):
                assert access is not None
                self.tile.turn_in(out, access, f"side_{self.pointers.names[access]}")
            out.line("__syncthreads();")
        for i in one.along:
            self._instruction(out, i)
        if stores:
            out.line("__syncthreads();")
            for access in dict.fromkeys(stores):
                assert access is not None
                self.tile.turn_out(out, access, f"side_{self.pointers.names[access]}", self.pointers.once(access, "side_"))
            out.line("__syncthreads();")

    def _instruction(self, out: Writer, one: Instruction) -> None:
        name = self.names[one.cell]
        if one.kind == "map":
            assert isinstance(one.body, Expression)
            names = {n: f"{self.names[n]}[u][i]" if part.wide else self.names[n] for n, part in one.sources}
            out.line(f"{self.element.c} {name}[TILE][VECTOR];")
            with self.tile.elements(out):
                out.line(f"{name}[u][i] = {self.element.text(one.body, names, self._inverted(one), 1)};")
        elif one.kind == "reduce":
            self._reduce(out, one)
        elif one.target.buffer.elements == 0:
            self.tile.load(out, one.sources[0][1], name, self._at(one.sources[0][1]))
        else:
            once = self.pointers.once(one.target.access) if one.target.access is not None else []
            shared = one.target.buffer.level is Level.SRAM
            self.tile.store(out, one.target, name, self._at(one.target), [] if shared else ["here", *once])

    def _reduce(self, out: Writer, one: Instruction) -> None:
        total, online = f"{self._sum(one)}[u]", isinstance(one.body, Online)
        identity = -math.inf if online else self.element.identity(reduction_of(one))
        value, nothing = f"{self.names[one.sources[0][0]]}[u][i]", self.element.number(identity)
        value = f"({self.tile.inside} ? {value} : {nothing})" if self.tile.inside else value
        if online:
            RunningSum(self.names[one.cell]).take(out, self.tile.elements, value)
            return
        with self.tile.elements(out):
            out.line(f"{total} = {self._joined(one, total, value)};")

    def _inverted(self, one: Instruction) -> Mapping[str, str]:
        return {name: self.inverses[name] for name, part in one.sources if name in self.inverses and not part.wide}

    def _joined(self, one: Instruction, a: str, b: str) -> str:
        return self.element.joined(reduction_of(one), a, b, 1)

    def _sum(self, reduction: Instruction) -> str:
        return f"sum_{self.names[reduction.cell]}"

    def _fold(self, out: Writer, reductions: list[Instruction]) -> None:
        warps = self.shape.lanes > WARP
        shared = {i.cell: f"(shared + {self.places.shared[i.cell]})" for i in reductions} if warps else {}
        for some in _in_turn(reductions):
            for one in some:
                self._of_lane(out, one)
            Fold(self.shape.lanes, self.element, self.names, shared).write(out, some)
        for one in reductions if self.places.finishes else ():
            with out.guarded(["here", "lane == 0"]):
                place = f"static_cast<long long>(row) * {self.shape.parts} + part"
                out.line(f"{c_name(parts_name(one.cell))}[{place}] = {self.names[one.cell]};")

    def _of_lane(self, out: Writer, one: Instruction) -> None:
        name = self.names[one.cell]
        if isinstance(one.body, Online):
            top = self.names[one.body.top]
            out.line(f"float {name} = {RunningSum(name).scaled(floored(top) if self.places.finishes else top)};")
            return
        out.line(f"{self.element.c} {name} = {self._sum(one)}[0];")
        for u in range(1, self.shape.tile):
            out.line(f"{name} = {self._joined(one, name, f'{self._sum(one)}[{u}]')};")


def _in_turn(reductions: Sequence[Instruction]) -> list[list[Instruction]]:
    """Group reductions that share a barrier: plain reductions first, then online sums, which need the row's maxima."""
    plain, online = ([one for one in reductions if isinstance(one.body, Online) == late] for late in (False, True))
    return [some for some in (plain, online) if some]


def _slices(one: Instruction) -> list[Slice]:
    return [one.target, *(part for _, part in one.sources)]
