"""CUDA text of the operations on rows between a chain's two products, such as softmax, for scores in registers.

Lane l has four of the 16 x 8 scores of every instruction: element i is in row l / 4 + 8 (i / 2) of the 16. A scalar of a row
is an array [M_TILES][2], equal in the four lanes of the row after a reduction over them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gensor_gym.codegen.c.text import identifiers
from gensor_gym.codegen.chains.cuda.plan import Plan
from gensor_gym.codegen.chains.cuda.products import TILE_M
from gensor_gym.codegen.cuda.text import Loop, Writer
from gensor_gym.codegen.gir.cuda.inputs import converted, type_of
from gensor_gym.codegen.gir.cuda.online import floored
from gensor_gym.codegen.gir.cuda.sums import ALL
from gensor_gym.codegen.gir.cuda.where import Pointers
from gensor_gym.codegen.gir.elements import FLOAT
from gensor_gym.codegen.gir.expressions import c_text
from gensor_gym.dataflow.expressions import Constant, Expression, operands
from gensor_gym.dataflow.nodes import Triangle
from gensor_gym.gir.nest import Access, Cell, RowNest

_LANES_OF_ROW = 4
_HALF = Loop("half", "2")
_ROW, _ELEMENT = "[tile_m][half]", "[tile_m][i / 2]"


class Between:
    """Writer of the CUDA text between a chain's products, which turns scores into weights.

    If nothing is computed between the products, it writes nothing.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.stream = plan, plan.stream
        self.guarded = plan.chain.columns % plan.value("keys") > 0
        cells = self.nest.cells if plan.stream.nest is not None else ()
        self.names = dict(zip((c.name for c in cells), identifiers(f"v_{c.name}" for c in cells), strict=True))
        loads = [c.made for c in cells if isinstance(c.made, Access) and plan.chain.is_read(c)]
        self._is_crossed = False
        self.pointers = Pointers.of(self.nest, list(dict.fromkeys(loads))) if loads else None

    @property
    def nest(self) -> RowNest:
        """The loops over rows of scores (row nest) between the products. Use it only for a chain that has one."""
        assert self.stream.nest is not None
        return self.stream.nest

    def begin(self, out: Writer) -> None:
        """Write declarations that come before all passes over the keys.

        They are pointers to the lane's rows of the tensors that the row nest reads, and the scalars of rows that depend
        on no pass.
        """
        if self.pointers is not None:
            for access, name in self.pointers.names.items():
                out.line(f"const {type_of(self.nest, access)} *{name}[M_TILES][2];")
            with out.nest([TILE_M, _HALF]):
                out.line("const int block_row = (warp * M_TILES + tile_m) * 16 + half * 8 + lane / 4;")
                own = "first_row + block_row"
                own = f"min({own}, ROWS - 1)" if self.plan.chain.rows % self.plan.rows else own
                out.line(f"const {self.pointers.index} row = static_cast<{self.pointers.index}>(element) * ROWS + {own};")
                digits = self.pointers.digits(out, "row")
                for access, name in self.pointers.names.items():
                    out.line(f"{name}{_ROW} = {self.pointers.row_of(access, digits)};")
        self._numbers(out, self.stream.numbers(-1))

    def begin_pass(self, out: Writer, place: int) -> None:
        """Write declarations of the reductions of pass `place` over the keys."""
        for cell in self.stream.reductions(place):
            self._declare(out, self.names[cell.name], FLOAT.number(FLOAT.identity(cell.made)))  # type: ignore[arg-type]
        if place == self.stream.passes - 1 and (running := self.stream.running) is not None:
            self._declare(out, self.names[running.top], "-INFINITY")
            for name in running.sums:
                self._declare(out, self.names[name], "0.0f")

    def _declare(self, out: Writer, name: str, value: str) -> None:
        out.line(f"float {name}[M_TILES][2];")
        with out.nest([TILE_M, _HALF]):
            out.line(f"{name}{_ROW} = {value};")

    def step(self, out: Writer, place: int) -> None:
        """Write the work of pass `place` on the scores of one tile of keys.

        It updates the reductions, and in the last pass computes the weights.
        """
        if self.stream.nest is None:
            return
        last = place == self.stream.passes - 1
        if last and self.stream.running is not None:
            self._running(out, place)
            return
        for _ in self._with_diagonal(out):
            self._cells(out, place)
            for cell in self.stream.reductions(place):
                self._reduce(out, cell)
            if last:
                out.line(f"score = {self._inside(self._text(self.stream.weights), '0.0f')};")

    def _running(self, out: Writer, place: int) -> None:
        """Write the last pass's work on a tile's scores with a running maximum: scores become exponentials, sums are rescaled.

        The exponentials are exp(x - top) = 2^((x - top) log2(e)). The difference is computed before the multiplication:
        where a mask makes all scores of a row -1e10 or the lowest finite number, a score times log2(e) would overflow, or its
        rounding error would exceed the difference.
        """
        running = self.stream.running
        assert running is not None
        top = self.names[running.top]
        out.line(f"constexpr float LOG2_E = {math.log2(math.e)!r}f;")
        out.line("float largest[M_TILES][2];")
        with out.nest([TILE_M, _HALF]):
            out.line(f"largest{_ROW} = -INFINITY;")
        for _ in self._with_diagonal(out):
            self._cells(out, place)
            out.line(f"score = {self._inside(self._text(running.of), '-INFINITY')};")
            out.line(f"largest{_ELEMENT} = larger(largest{_ELEMENT}, score);")
        out.line(f"float base[M_TILES][2]{', scale[M_TILES][2]' if self.plan.defers else ''};")
        with out.nest([TILE_M, _HALF]):
            self._fold(out, f"largest{_ROW}", "max")
            out.line(f"const float before = {floored(f'{top}{_ROW}')};")
            out.line(f"{top}{_ROW} = larger({top}{_ROW}, largest{_ROW});")
            out.line(f"base{_ROW} = {floored(f'{top}{_ROW}')};")
            scale = f"scale{_ROW}" if self.plan.defers else "scale"
            out.line(f"{'' if self.plan.defers else 'const float '}{scale} = power_of_two((before - base{_ROW}) * LOG2_E);")
            out.lines += [f"{'  ' * out.depth}{self.names[name]}{_ROW} *= {scale};" for name in running.sums]
            if not self.plan.defers:
                self._rescale(out, scale)
        with self._elements(out):
            out.line(f"score = power_of_two((score - base{_ELEMENT}) * LOG2_E);")
            out.lines += [f"{'  ' * out.depth}{self.names[name]}{_ELEMENT} += score;" for name in running.sums]

    @property
    def known(self) -> str:
        """CUDA condition that always holds. It depends on a tile's exponentials, so code under it runs only after them.

        The text is empty if their sum is not computed. Sums of exponentials are not negative; they may be NaN.
        """
        running = self.stream.running
        if running is None or not running.sums:
            return ""
        name = self.names[running.sums[0]]
        return f"!({name}[0][0] + {name}[0][1] < 0.0f)"

    def rescale(self, out: Writer) -> None:
        """Write the rescaling of the output's sums to a new running maximum, which `step` leaves out if the plan defers it."""
        if self.stream.running is not None:
            with out.nest([TILE_M, _HALF]):
                self._rescale(out, f"scale{_ROW}")

    def _rescale(self, out: Writer, scale: str) -> None:
        with out.nest([Loop("tile_out", "OUT_TILES"), Loop("i", "2")]):
            out.line(f"{self.plan.sum('2 * half + i')} *= {scale};")

    def _with_diagonal(self, out: Writer) -> Iterator[None]:
        """Write loops over the lane's scores of a tile around the body of a `for` loop.

        If rows see keys up to a diagonal, it is written twice: for tiles that the diagonal crosses, and for those before it,
        which need no comparisons.
        """
        masks = self.plan.chain.masks.values()
        if not masks:
            with self._elements(out):
                yield
            return
        first = f"first_row + warp * M_TILES * 16 + {min(one.diagonal for one in masks)}"
        for self._is_crossed, condition in (True, f"if (key + KEYS - 1 > {first})"), (False, "else"):
            with out.block(condition), self._elements(out):
                yield

    @contextmanager
    def _elements(self, out: Writer) -> Iterator[None]:
        """Write loops over the lane's scores of a tile around the `with` block.

        They define `score` and its key `column`.
        """
        with out.nest([TILE_M, Loop("tile_n", "KEY_TILES"), Loop("i", "4")]):
            out.line(f"float &score = {self.plan.score};")
            out.line("const int column = key + tile_n * 8 + lane % 4 * 2 + i % 2;")
            yield

    def _cells(self, out: Writer, place: int) -> None:
        for cell in self.stream.wide(place):
            if (known := self.plan.chain.masks.get(cell.name)) is not None:
                value = self._of_triangle(known)
            elif isinstance(cell.made, Access):
                value = "score" if cell.made.tensor == self.plan.chain.scores else self._inside(self._loaded(cell.made), "0.0f")
            else:
                value = c_text(cell.made, {name: self._text(name) for name in cell.sources}, {}, 1)  # type: ignore[arg-type]
            out.line(f"const float {self.names[cell.name]} = {value};")

    def _of_triangle(self, known: Triangle) -> str:
        below, above = FLOAT.number(known.below), FLOAT.number(known.above)
        row = "first_row + (warp * M_TILES + tile_m) * 16 + i / 2 * 8 + lane / 4"
        return f"column <= {row} + {known.diagonal} ? {below} : {above}" if self._is_crossed else below

    def _loaded(self, access: Access) -> str:
        assert self.pointers is not None
        place = "" if not access.column else " + column" if access.column == 1 else f" + column * {access.column}ll"
        return converted(self.nest, access, f"*({self.pointers.names[access]}{_ELEMENT}{place})")

    def _inside(self, value: str, other: str) -> str:
        return f"column < COLUMNS ? {value} : {other}" if self.guarded else value

    def _text(self, name: str) -> str:
        return self.names[name] if self.nest.cell[name].wide else f"{self.names[name]}{_ELEMENT}"

    def _reduce(self, out: Writer, cell: Cell) -> None:
        own = f"{self.names[cell.name]}{_ELEMENT}"
        identity = FLOAT.number(FLOAT.identity(cell.made))  # type: ignore[arg-type]
        value = f"({self._inside(self._text(cell.sources[0]), identity)})"
        out.line(f"{own} = {_joined(cell.made, own, value)};")  # type: ignore[arg-type]

    def end_pass(self, out: Writer, place: int) -> None:
        """Write the end of pass `place` over the keys.

        It combines the reductions over the lanes of each row, then computes the scalars of rows that depend on them.
        """
        found = [(self.names[cell.name], cell.made) for cell in self.stream.reductions(place)]
        running = self.stream.running if place == self.stream.passes - 1 else None
        found += [(self.names[name], "sum") for name in (running.sums if running is not None else ())]
        for name, kind in found:
            with out.nest([TILE_M, _HALF]):
                self._fold(out, f"{name}{_ROW}", kind)  # type: ignore[arg-type]
        if self.stream.nest is not None:
            self._numbers(out, self.stream.numbers(place))

    def _fold(self, out: Writer, name: str, kind: str) -> None:
        distance = _LANES_OF_ROW // 2
        while distance:
            other = f"__shfl_xor_sync({ALL}, {name}, {distance})"
            out.line(f"{name} = {_joined(kind, name, other)};")
            distance //= 2

    def _numbers(self, out: Writer, cells: Sequence[Cell]) -> None:
        for cell in cells:
            out.line(f"float {self.names[cell.name]}[M_TILES][2];")
            with out.nest([TILE_M, _HALF]):
                if isinstance(cell.made, Access):
                    assert self.pointers is not None
                    value = converted(self.nest, cell.made, f"*{self.pointers.names[cell.made]}{_ROW}")
                else:
                    value = self._of_row(cell.made, cell.sources)  # type: ignore[arg-type]
                out.line(f"{self.names[cell.name]}{_ROW} = {value};")

    def _of_row(self, made: Expression, sources: Sequence[str]) -> str:
        return c_text(made, {name: f"{self.names[name]}{_ROW}" for name in sources}, {}, 1)

    def factor(self) -> str:
        """Return the CUDA text of the scalar by which a row of the output is multiplied; empty without such a scalar."""
        running = self.stream.running
        if running is None or running.factor == Constant(1.0):
            return ""
        return self._of_row(running.factor, operands(running.factor))


def _joined(kind: str, a: str, b: str) -> str:
    return f"larger({a}, {b})" if kind == "max" else f"({a} + {b})"
