"""C text of one product of a chain: register tiles over a block of rows, and a copy of the right operand if needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gensor_gym.chains.chain import Product
from gensor_gym.codegen.c.text import Lines, add, linear

_UNROLLED = 96
"""Largest number of vector multiply-adds in an unrolled loop body."""
_LINE, _AHEAD = 16, 8
"""Number of float32 elements in a cache line; number of rows ahead that copies prefetch.

Hardware prefetchers do not follow streams across pages.
"""


def fetched(pointer: str, ahead: int, place: str, writes: bool = False) -> str:
    """Return the C statement that prefetches the cache line `ahead` float32 elements past `pointer[place]`.

    The address may be outside any tensor.
    """
    at = f"(const void *)((uintptr_t)({pointer}) + {4 * ahead} + 4 * ({place}))"
    return f"__builtin_prefetch({at}{', 1' if writes else ''});"


@dataclass(frozen=True)
class Operand:
    """Strides of a product's matrix in elements.

    If `padded`, whole vectors may be loaded and stored at the end of a row. `ending` ends the names of helpers that load and
    store 16-bit elements (`c.layout.operands.ENDINGS`); empty for float32.
    """

    row: int
    column: int
    padded: bool = False
    ending: str = ""

    @property
    def c_type(self) -> str:
        """C type of an element."""
        return "uint16_t" if self.ending else "float"

    def number(self, at: str) -> str:
        """Return the C text of the element at the pointer `at`, converted to float32."""
        return f"load{self.ending}_1({at})" if self.ending else f"*({at})"


@dataclass(frozen=True)
class Strip:
    """The columns of `count` adjacent register tiles, from column `start` on.

    A row of each tile has `vectors` adjacent vectors.
    """

    start: int
    count: int
    vectors: int
    lanes: int
    """Number of valid lanes of the last vector in each row of the tile."""


@dataclass(frozen=True)
class Ends:
    """C texts of the numbers of columns and of steps of the sum that a block computes; empty for all of them."""

    columns: str = ""
    inner: str = ""


@dataclass(frozen=True)
class ProductPrinter:
    """Writer of the C text of a product C[rows, columns] = A[rows, inner] * B[inner, columns] for blocks of rows.

    A register tile has `height` rows and `vectors` vectors of `width` lanes.
    """

    name: str
    shape: Product
    height: int
    vectors: int
    width: int
    depth: int
    """Number of steps along `inner` that one call of a register tile adds up."""
    copied: bool
    a: Operand
    b: Operand
    """Strides of B in its own tensor, not in the copy."""
    c: Operand
    asks: bool = False
    """Whether the first register tiles of a panel of a copied B prefetch the panel after it, a cache line in each step."""

    @property
    def wide(self) -> int:
        """Number of columns of a whole register tile."""
        return self.vectors * self.width

    @property
    def right(self) -> Operand:
        """Strides of B where register tiles read it: in the float32 copy, or in the tensor."""
        return Operand(self.wide, 1, padded=True) if self.copied else self.b

    @property
    def carries(self) -> bool:
        """Whether sums are split along `inner`.

        A register tile then adds to the value in C that an earlier call has stored there.
        """
        return self.depth < self.shape.inner

    def strips(self) -> Iterator[Strip]:
        """Yield the strips of columns: first all whole register tiles, then a narrower tile for the remainder."""
        whole, rest = divmod(self.shape.columns, self.wide)
        if whole:
            yield Strip(0, whole, self.vectors, self.width)
        if rest:
            vectors = -(-rest // self.width)
            yield Strip(whole * self.wide, 1, vectors, rest - (vectors - 1) * self.width)

    def heights(self, rows: int) -> list[tuple[int, int, int]]:
        """Divide a block of `rows` rows into register tiles.

        Return (first row, number of tiles, rows of each tile) for each group of equal tiles.
        """
        whole, rest = divmod(rows, self.height)
        found = [(0, whole, self.height), (whole * self.height, 1, rest)]
        return [one for one in found if one[1] and one[2]]

    def functions(self, blocks: set[int]) -> list[str]:
        """Return the C functions of all register tiles that blocks with these numbers of rows need."""
        tall = sorted({height for rows in blocks for _, _, height in self.heights(rows)}, reverse=True)
        return [self._tile(height, strip) for strip in self.strips() for height in tall]

    def _tile_name(self, height: int, strip: Strip) -> str:
        return f"{self.name}_{height}x{strip.vectors}" + ("" if strip.lanes == self.width else f"_{strip.lanes}")

    def _tile(self, height: int, strip: Strip) -> str:
        w, lines = self.width, Lines()
        carried = ", const int carried" if self.carries else ""
        a, right = self.a, self.right
        arguments = f"const {a.c_type} *a, const {right.c_type} *b, {self.c.c_type} *const c, const long steps{carried}"
        arguments += f", const {right.c_type} *ahead" if self.asks else ""
        places = [(r, v) for r in range(height) for v in range(strip.vectors)]
        with lines.block(f"static void {self._tile_name(height, strip)}({arguments})"):
            for r in range(height):
                names = ", ".join(f"s{r}_{v} = splat_{w}(0.0f)" for v in range(strip.vectors))
                lines.add(f"vec{w} {names};")
            if self.carries:
                with lines.block("if (carried)"):
                    lines.add(*(f"s{r}_{v} = {self._load(self.c, self._c(r, v), strip, v)};" for r, v in places))
            unroll = max(1, min(4, _UNROLLED // len(places)))
            lines.add(f"UNROLL({unroll})")
            ahead = f", ahead += {_LINE}" if self.asks else ""
            with lines.block(f"for (long k = 0; k < steps; k++, a += {self.a.column}, b += {right.row}{ahead})"):
                lines.add(*(["__builtin_prefetch(ahead, 0, 2);"] if self.asks else []))
                for v in range(strip.vectors):
                    loaded = self._load(right, add("b", str(v * w)), strip, v)
                    lines.add(f"const vec{w} b{v} = hold_{w}({loaded});")
                for r in range(height):
                    lines.add(f"const float a{r} = {a.number(add('a', str(r * a.row))) if a.ending else f'a[{r * a.row}]'};")
                    lines.add(*(f"s{r}_{v} += a{r} * b{v};" for v in range(strip.vectors)))
            lines.add(*(self._store(self._c(r, v), f"s{r}_{v}", strip, v) for r, v in places))
        return str(lines)

    def _c(self, row: int, vector: int) -> str:
        return add("c", str(row * self.c.row + vector * self.width))

    def _is_cut(self, strip: Strip, vector: int, padded: bool) -> bool:
        return not padded and vector == strip.vectors - 1 and strip.lanes < self.width

    def _load(self, operand: Operand, at: str, strip: Strip, vector: int) -> str:
        ending = operand.ending
        if self._is_cut(strip, vector, operand.padded):
            return f"load_masked{ending}_{self.width}({at}, 0, {strip.lanes}, {'0' if ending else '0.0f'})"
        return f"load{ending}_{self.width}({at})"

    def _store(self, at: str, what: str, strip: Strip, vector: int) -> str:
        ending = self.c.ending
        if self._is_cut(strip, vector, self.c.padded):
            return f"store_masked{ending}_{self.width}({at}, 0, {strip.lanes}, {what});"
        return f"store{ending}_{self.width}({at}, {what});"

    def block(self, lines: Lines, rows: int, a: str, b: str, c: str, ends: Ends) -> None:
        """Write the loops over a block's register tiles.

        `a`, `b` and `c` are C texts of pointers. The loop over rows is the innermost, to reuse a tile of B.
        """
        inner = ends.inner or str(self.shape.inner)
        for strip in self.strips():
            end = str(strip.start + strip.count * self.wide)
            end = f"least({end}, {ends.columns})" if ends.columns else end
            loop = f"for (long j = {strip.start}; j < {end}; j += {self.wide})"
            needed = f"if ({strip.start} < {ends.columns})" if ends.columns and strip.start else ""
            with lines.block(loop if strip.count > 1 else needed):
                lines.add(*([] if strip.count > 1 else [f"const long j = {strip.start};"]))
                if not self.carries:
                    self._rows(lines, rows, strip, (a, b, c), "0", inner)
                    continue
                with lines.block(f"for (long k = 0; k < {inner}; k += {self.depth})"):
                    lines.add(f"const long steps = least({self.depth}, {inner} - k);")
                    self._rows(lines, rows, strip, (a, b, c), "k", "steps")

    def _rows(self, lines: Lines, rows: int, strip: Strip, names: tuple[str, str, str], k: str, steps: str) -> None:
        a, b, c = names
        panel = self.shape.inner if self.copied else 1
        for start, count, height in self.heights(rows):
            r = "r" if count > 1 else str(start)
            places = [
                linear([(self.a.row, r), (self.a.column, k)]),
                linear([(panel, "j"), (self.right.row, k)]),
                linear([(self.c.row, r), (1, "j")]),
            ]
            if count == 1 and start:
                places[0] = linear([(self.a.column, k)], start * self.a.row)
                places[2] = linear([(1, "j")], start * self.c.row)
            given = [add(name, place) for name, place in zip((a, b, c), places, strict=True)]
            flag = (", k > 0" if self.carries else "") + (self._ahead(given[1], r, height) if self.asks else "")
            call = f"{self._tile_name(height, strip)}({', '.join(given)}, {steps}{flag});"
            if count == 1:
                lines.add(call)
            else:
                lines.add(f"for (long r = 0; r < {count * height}; r += {height}) {call}")

    def _ahead(self, panel: str, r: str, height: int) -> str:
        """Return the C text of the argument with the address that a register tile prefetches from on: its part of a panel."""
        part = self.shape.inner * _LINE
        last = -(-self.wide // _LINE) - 1
        place = f"least({r} / {height}, {last}) * {part}" if r == "r" else str(min(int(r) // height, last) * part)
        return f", {add(panel, str(self.shape.inner * self.wide), place)}"

    def copy_function(self) -> str:
        """Return the C function `copy_NAME`, which copies B tile by tile of columns and pads the last tile with zeros."""
        lines = Lines()
        whole = self.shape.columns // self.wide * self.wide
        with lines.block(f"static void copy_{self.name}(const {self.b.c_type} *const source, float *const copy)"):
            if whole:
                with lines.block(f"for (long j = 0; j < {whole}; j += {self.wide})"):
                    self._copy_strip(lines, "j", self.wide)
            if rest := self.shape.columns - whole:
                self._copy_strip(lines, str(whole), rest)
        return str(lines)

    def _copy_strip(self, lines: Lines, j: str, columns: int) -> None:
        """Write the copy of one register tile's columns of B.

        Contiguous columns are copied by transposed blocks, contiguous rows by vectors.
        """
        start = linear([(self.b.column, j)]) if j == "j" else str(int(j) * self.b.column)
        place = linear([(self.shape.inner, j)]) if j == "j" else str(int(j) * self.shape.inner)
        source, copy, width = add("source", start), add("copy", place), self.width
        whole = columns // width * width if 1 in (self.b.row, self.b.column) else 0
        if self.b.row == 1:
            for done in range(0, whole, width):
                here = add(source, str(done * self.b.column))
                ahead = fetched(here, width * self.b.column, f"x * {self.b.column} + k")
                lines.add(f"for (long x = 0; x < {width}; x++)")
                lines.add(f"    for (long k = 0; k < {self.shape.inner}; k += {_LINE}) {ahead}")
                given = f"{here}, {self.b.column}, {add(copy, str(done))}"
                lines.add(f"copy_columns{self.b.ending}_{width}({given}, {self.shape.inner}, {self.wide});")
        if whole == self.wide and self.b.row == 1:
            return
        with lines.block(f"for (long k = 0; k < {self.shape.inner}; k++)"):
            lines.add(f"const {self.b.c_type} *const from = {add(source, linear([(self.b.row, 'k')]))};")
            lines.add(f"float *const to = {add(copy, linear([(self.wide, 'k')]))};")
            for done in range(0, whole if self.b.row != 1 else 0, _LINE):
                lines.add(fetched("from", _AHEAD * self.b.row, str(done)))
            for done in range(0, whole if self.b.row != 1 else 0, width):
                lines.add(f"store_{width}({add('to', str(done))}, load{self.b.ending}_{width}({add('from', str(done))}));")
            if whole < self.wide:
                place = linear([(self.b.column, "x")])
                value = self.b.number(f"from + {place}") if self.b.ending else f"from[{place}]"
                if self.b.ending:  # gcc 12.2 compiles a choice to a load of all lanes, past the end of a tensor of 16 bits
                    lines.add("long x;", f"for (x = {whole}; x < {columns}; x++) to[x] = {value};")
                    lines.add(f"for (; x < {self.wide}; x++) to[x] = 0.0f;")
                    return
                value = value if columns == self.wide else f"x < {columns} ? {value} : 0.0f"
                lines.add(f"for (long x = {whole}; x < {self.wide}; x++) to[x] = {value};")
