"""C text of the kernel that copies a convolution's image and weights to the workspace with channels innermost, before a wgmma.

Operands that already have their channels innermost are not copied. Of the others, matrices [channels, columns] are transposed.
Columns are the pixels of an image, or the window elements of an output channel. A block reads a tile along columns and writes it
along channels. Pixels that no window reads are omitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gensor_gym.codegen.cuda.kernel import kernel_text
from gensor_gym.codegen.cuda.text import Loop, Writer, remainder, total
from gensor_gym.codegen.cuda.wgmma.convolution import ConvolutionPlan
from gensor_gym.codegen.kernel import LAYOUT, Launch

THREADS = 256
"""Number of threads of a block."""
WORD = 4
"""Number of bytes that a thread reads or writes at once: 1, 2 or 4 elements."""
ROW_BYTES = 128
"""Most bytes of a tile along its columns: a warp's read in words."""
TILE_BYTES = 8192
"""Most bytes of a tile: eight words for each thread."""
KINDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned"}
"""Size in bytes -> C type of an element or of several adjacent elements."""


@dataclass(frozen=True)
class Transposition:
    """Transposition of `batches` matrices [channels, columns] of the tensor `name` into the workspace, with channels contiguous.

    An element has `item` bytes. Distances in the workspace, in elements, are `offset` to the first matrix, `batch` from one
    matrix to the next, and `pitch` from one column to the next. In the tensor, columns are in rows of `row` columns; `steps` are
    the distances in elements from one channel, row and column to the next.
    """

    name: str
    item: int
    batches: int
    channels: int
    columns: int
    offset: int
    batch: int
    pitch: int
    row: int
    steps: tuple[int, int, int]

    @property
    def place(self) -> str:
        """C text of the offset of column `column` in the tensor, from the channel's first element."""
        _, row, column = self.steps
        if row == self.row * column:
            return total([(column, "column")])
        return total([(row, f"column / {self.row}"), (column, f"column % {self.row}")])

    @property
    def across(self) -> int:
        """Number of columns of the tile that a block transposes."""
        return min(self.columns, ROW_BYTES // self.item)

    @property
    def down(self) -> int:
        """Number of channels of the tile that a block transposes, a multiple of 64. Tiles with few columns have more channels."""
        return min(TILE_BYTES // self.item // self.across // 64, -(-self.channels // 64)) * 64

    @property
    def together(self) -> int:
        """Number of elements in a word of 4 bytes."""
        return WORD // self.item

    @property
    def width(self) -> int:
        """Number of adjacent columns that a thread reads at once. It divides all distances, so that reads are aligned."""
        channel, row, column = self.steps
        return math.gcd(self.together, self.row, row, channel) if column == 1 else 1

    @property
    def shared_pitch(self) -> int:
        """Number of elements from one row of the tile to the next in shared memory.

        It is an odd number of words, so that columns are in many banks.
        """
        return (-(-self.across // self.together) | 1) * self.together

    @property
    def grid(self) -> tuple[int, int, int]:
        """Numbers of blocks: (matrices, tiles along channels, tiles along columns)."""
        return self.batches, -(-self.channels // self.down), -(-self.columns // self.across)


def layout_kernel(plan: ConvolutionPlan, entry: str) -> tuple[str, Launch] | None:
    """Return (text, launch) of the kernel that copies a convolution's operands; None if all of them have channels innermost."""
    parts, out = transpositions(plan), Writer(depth=1)
    if not parts:
        return None
    kind = KINDS[plan.item]
    out.line(f"{kind} *laid_out = reinterpret_cast<{kind} *>(workspace);")
    out.line(f"{kind} *tile = reinterpret_cast<{kind} *>(shared_memory);")
    out.line("const int thread = threadIdx.x;")
    begin = 0
    for part, words in parts.items():
        blocks, last = math.prod(part.grid), part == list(parts)[-1]
        head = "else" if begin and last else f"if (blockIdx.x < {begin + blocks})"
        with out.block("" if last and not begin else head):
            out.note(words)
            _write(out, part, f"(blockIdx.x - {begin})" if begin else "blockIdx.x")
        begin += blocks
    shared = max(part.down * part.shared_pitch * plan.item for part in parts)
    launch = Launch(f"{entry}{LAYOUT}", (begin, 1, 1), (THREADS, 1, 1), shared)
    return kernel_text(plan, launch.entry, out, str(THREADS), {}), launch


def transpositions(plan: ConvolutionPlan) -> dict[Transposition, str]:
    """Return the transpositions of the image and the weights that are needed, each with a comment on what it does.

    Operands with channels innermost need none.
    """
    n, c, *shape = plan.image.view
    *_, p, q = plan.pixels.view
    k, _, r, s = plan.weights.view
    pitch, item, whole, found = plan.channels, plan.item, math.prod(shape), {}
    if plan.roles.b in plan.moved:
        row, steps = p * q, (whole, whole, 1)
        if [p, q] != shape:
            _, i, j = plan.column_axes
            row, steps = q, (whole, plan.image.axis_strides()[i], plan.image.axis_strides()[j])
        name = plan.image.tensor.name
        image = Transposition(name, item, n, c, p * q, plan.image_offset // item, p * q * pitch, pitch, row, steps)
        found[image] = "the image: channels of a pixel side by side"
    if plan.roles.a in plan.moved:
        name, taps = plan.weights.tensor.name, (r * s, (r * s, r * s, 1))
        weights = Transposition(name, item, k, c, r * s, plan.weights_offset // item, pitch, k * pitch, *taps)
        found[weights] = "the weights: channels of a window element side by side"
    return found


def _write(out: Writer, part: Transposition, block: str) -> None:
    _, down, across = part.grid
    channel, column = remainder(block, across, down if part.batches > 1 else 0), f"{block} % {across}"
    out.line(f"const int batch = {remainder(block, down * across, 0) if part.batches > 1 else '0'};")
    out.line(f"const int first_channel = {f'{channel} * {part.down}' if down > 1 else '0'};")
    out.line(f"const int first_column = {f'{column} * {part.across}' if across > 1 else '0'};")
    _write_reads(out, part)
    out.line("__syncthreads();")
    words, scale = part.down // part.together, f" * {part.together}" if part.together > 1 else ""
    with _turns(out, part.across * words):
        out.line(f"const int at = part / {words}, row = part % {words}{scale};")
        out.line("const int channel = first_channel + row, column = first_column + at;")
        with out.guarded([f"channel < {part.channels}", f"column < {part.columns}"]):
            _write_word(out, part)


def _write_word(out: Writer, part: Transposition) -> None:
    names = {1: ["word"], 2: ["low", "high"], 4: ["first", "second", "third", "fourth"]}[part.together]
    places = [total([(part.shared_pitch, "row"), (1, "at")], number * part.shared_pitch) for number in range(len(names))]
    out.line(f"const unsigned {', '.join(f'{name} = tile[{place}]' for name, place in zip(names, places, strict=True))};")
    address = total([(part.batch, "batch"), (part.pitch, "column"), (1, "channel")], part.offset)
    word = [names[0], *(f"{name} << {8 * part.item * number}" for number, name in enumerate(names[1:], 1))]
    out.line(f"*reinterpret_cast<unsigned *>(&laid_out[{address}]) = {' | '.join(word)};")


def _write_reads(out: Writer, part: Transposition) -> None:
    pairs, kind = part.across // part.width, KINDS[part.width * part.item]
    with _turns(out, part.down * pairs):
        out.line(f"const int row = part / {pairs}, at = {total([(part.width, f'(part % {pairs})')])};")
        out.line("const int channel = first_channel + row, column = first_column + at;")
        channel = part.steps[0]
        address = total([(part.channels * channel, "batch"), (channel, "channel"), (1, part.place)])
        read = f"*reinterpret_cast<const {kind} *>(&{part.name}[{address}])"
        inside = f"channel < {part.channels} && column < {part.columns}"
        out.line(f"const {kind} value = {inside} ? {read} : 0;")
        out.line(f"*reinterpret_cast<{kind} *>(&tile[row * {part.shared_pitch} + at]) = value;")


@contextmanager
def _turns(out: Writer, count: int) -> Iterator[None]:
    """Write a loop over this thread's share of `count` parts around the `with` block; `part` is the index of the current part."""
    with out.nest([Loop("turn", str(-(-count // THREADS)))]):
        out.line(f"const int part = turn * {THREADS} + thread;")
        with out.guarded([f"part < {count}"] if count % THREADS else []):
            yield
