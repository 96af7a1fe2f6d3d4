"""C text of the end of Winograd's algorithm: sums of a block's image tiles become results, with the epilogue, and are stored."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

from gensor_gym.codegen.c.loops import call_tile
from gensor_gym.codegen.c.micro.finish import finish, result_name, store
from gensor_gym.codegen.c.micro.kernel import parameters
from gensor_gym.codegen.c.operand import Reader
from gensor_gym.codegen.c.plan import LoopPlan, make_plan
from gensor_gym.codegen.c.text import Lines, add
from gensor_gym.codegen.c.variants import Variant, variants
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.winograd.transforms import step, sum_of, tile_start
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.structure import LEVELS
from gensor_gym.operators.images import outputs
from gensor_gym.operators.kinds.winograd import OUTPUT, POINTS, SPAN, TILE, tiles_of
from gensor_gym.winograd.layout import Layout

ROWS, COLUMNS = 2, 3
"""Indices of the axes of rows and columns of the output among the axes of a convolution."""
_SIDE_BY_SIDE = 4
"""Number of image tiles whose results are stored as one line of pixels, if channels are first."""


@dataclass(frozen=True)
class ResultPlan(LoopPlan):
    """Plan of a register tile with results of image tiles side by side, in one vector of channels.

    It is inside the output along rows and columns, because there are plans of other sizes for the ends.
    """

    shortened = -1

    def moves_back(self, axis: int) -> bool:
        """Return False."""
        return False

    def overhangs(self, axis: int) -> bool:
        """Return whether some register tile extends past the end of an axis: only of the channels."""
        return axis == self.vector and super().overhangs(axis)


@dataclass(frozen=True)
class Results:
    """Writer of the results of blocks of image tiles."""

    layout: Layout

    @cached_property
    def side(self) -> int:
        """Number of image tiles whose results one register tile has."""
        return min(_SIDE_BY_SIDE, self._across) if self.layout.together > 1 else 1

    @property
    def _across(self) -> int:
        return tiles_of(self.layout.op)[2]

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """Numbers of rows that register tiles have, the last one's last."""
        rows = outputs(self.layout.op)[0]
        return tuple(dict.fromkeys(size for size in (min(TILE, rows), rows % TILE) if size))

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Numbers of columns that register tiles have, the last one's last."""
        columns = outputs(self.layout.op)[1]
        last = columns - TILE * (self._across - self.side)
        return (TILE * self.side, last) if self._across > self.side and last < TILE * self.side else (last,)

    @cached_property
    def plans(self) -> dict[tuple[int, int], ResultPlan]:
        """Plan of the register tile of each height and width."""
        return {(height, width): self._plan(height, width) for height in self.heights for width in self.widths}

    @property
    def plan(self) -> ResultPlan:
        """The plan of the largest register tile."""
        return self.plans[self.heights[0], self.widths[0]]

    def _plan(self, height: int, width: int) -> ResultPlan:
        op, hw = self.layout.op, self.layout.hardware
        sizes = {op.channel_axis: hw.lanes, ROWS: height, COLUMNS: width}
        register = tuple(sizes.get(axis, 1) for axis in range(len(op.axes)))
        task = tuple(-(-extent // size) * size for extent, size in zip(op.extents, register, strict=True))
        knobs = {knob.name: knob.values[0] for knob in KNOBS} | {"convolution": 1, "pack_b": 1}
        tiles = (register, *(task,) * (LEVELS["cpu"] - 1))
        plan = make_plan(Program(op, hw, tiles, (1,) * len(op.axes), tuple(knobs.items())))
        named = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
        reads = tuple(dataclasses.replace(read, guarded=()) for read in plan.reads)  # results read no image
        return ResultPlan(**named | {"reads": reads})

    def functions(self) -> list[str]:
        """Return the C functions of the register tiles of results, and `results`, which calls them for a group of channels."""
        kinds = {size: [self._named(kind, size) for kind in variants(plan)] for size, plan in self.plans.items()}
        lines = Lines()
        lines.add("/* Results of a block's image tiles, in the channels of one group. */")
        arguments = "const struct call *const call, const float *const sums, long first, long count, long begin, long end"
        with lines.block(f"static void results({arguments})"):
            lines.add("struct task t;")
            for operand in (self.plan.output, *(stage for stage in self.plan.stages if stage is not None)):
                start = sum(s * o for s, o in zip(operand.access.strides(), operand.access.offset, strict=True))
                lines.add(f"t.{operand.name} = call->{operand.name};", f"t.{operand.name}_origin = {start};")
            tile_start(lines, self.layout, "first")
            (self._by_lines if self.layout.together > 1 else self._by_tiles)(lines, kinds)
        return [*(self._result(kind) for some in kinds.values() for kind in some), str(lines)]

    def _named(self, kind: Variant, size: tuple[int, int]) -> Variant:
        return dataclasses.replace(kind, name=f"{kind.name}_{size[0]}x{size[1]}")

    def _by_tiles(self, lines: Lines, kinds: dict[tuple[int, int], list[Variant]]) -> None:
        n, k, p, q = self.plan.axes[:4]
        with lines.block(f"for (long i = 0; i < count; i++, {step(self.layout)})"):
            lines.add(f"const long {n} = picture, {p} = {TILE} * down, {q} = {TILE} * across;")
            lines.add(" ".join(f"(void){name};" for name in (n, p, q)))
            with lines.block(f"for (long {k} = begin; {k} < end; {k} += {self.layout.hardware.lanes})"):
                for height in self.heights:
                    with lines.block(self._test(p, height, self.heights, ROWS)):
                        for width in self.widths:
                            with lines.block(self._test(q, width, self.widths, COLUMNS)):
                                self._call(lines, kinds[height, width], "i")

    def _by_lines(self, lines: Lines, kinds: dict[tuple[int, int], list[Variant]]) -> None:
        """Write the loop over rows of image tiles. The last register tile of a row begins earlier to stay inside it."""
        n, k, p, q = self.plan.axes[:4]
        last, rows = self._across - self.side, tiles_of(self.layout.op)[1]
        move = f"down + 1 < {rows} ? down++ : (down = 0, picture++)"
        with lines.block(f"for (long i = 0; i < count; i += {self._across}, {move})"):
            lines.add(f"const long {n} = picture, {p} = {TILE} * down;")
            lines.add(f"(void){n}; (void){p}; (void)across;")
            with lines.block(f"for (long {k} = begin; {k} < end; {k} += {self.layout.hardware.lanes})"):
                for height in self.heights:
                    with lines.block(self._test(p, height, self.heights, ROWS)):
                        if last:
                            with lines.block(f"for (long side = 0; side < {last}; side += {self.side})"):
                                lines.add(f"const long {q} = {TILE} * side;", f"(void){q};")
                                self._call(lines, kinds[height, self.widths[0]], "(i + side)")
                        lines.add(f"const long {q} = {TILE * last};", f"(void){q};")
                        self._call(lines, kinds[height, self.widths[-1]], f"(i + {last})" if last else "i")

    def _test(self, name: str, size: int, sizes: tuple[int, ...], axis: int) -> str:
        """Return the head of the block for register tiles of one of `sizes` along an axis."""
        if len(sizes) == 1:
            return ""
        return f"if ({name} + {size} <= {self.layout.op.extents[axis]})" if size == sizes[0] else "else"

    def _call(self, lines: Lines, kinds: list[Variant], tile: str) -> None:
        place = f"sums + {tile} * {self.layout.sum_row} + {self.plan.axes[1]} - begin"
        call_tile(lines, kinds[0].plan, kinds, place)

    def _result(self, kind: Variant) -> str:
        """Return the C function of the results of image tiles in one vector of channels, which ends with the epilogue."""
        lines, plan = Lines(), kind.plan
        reader = Reader(plan, kind.edge)
        given = ["const struct task *t", "const float *sums", *(f"long {name}" for name in parameters(plan))]
        with lines.block(f"static inline void {kind.name}({', '.join(given)})"):
            lines.add(*reader.clamps(), *reader.prologue(plan.output, written=True))
            for c, chunk in enumerate(plan.chunks):
                lines.add(*(f"vec{chunk.width} {result_name(plan, r, c)};" for r in range(len(plan.rows))))
                for tile in range(-(-plan.tiles[0][COLUMNS] // TILE)):
                    self._of_tile(lines, plan, c, tile)
            finish(lines, reader)
            store(lines, reader)
        return str(lines)

    def _of_tile(self, lines: Lines, plan: LoopPlan, c: int, tile: int) -> None:
        """Write the results of one image tile in the vector number `c`."""
        chunk, layout = plan.chunks[c], self.layout
        with lines.block(""):
            for point in range(POINTS):
                place = add("sums", str(tile * layout.sum_row + point * layout.sum_plane + chunk.offset))
                lines.add(f"const vec{chunk.width} m{point} = load_{chunk.width}({place});")
            for a in range(plan.tiles[0][ROWS]):
                for j in range(SPAN):
                    value = sum_of(OUTPUT[a], [f"m{i * SPAN + j}" for i in range(SPAN)])
                    lines.add(f"const vec{chunk.width} s{a}{j} = {value};")
            for r, row in enumerate(plan.rows):
                if row[COLUMNS] // TILE == tile:
                    value = sum_of(OUTPUT[row[COLUMNS] % TILE], [f"s{row[ROWS]}{j}" for j in range(SPAN)])
                    lines.add(f"{result_name(plan, r, c)} = {value};")
