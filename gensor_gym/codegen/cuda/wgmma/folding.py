"""Folding for a convolution of few channels with wgmma: the positions of a window's row are folded into the channels.

out[n][k][p][q] = sum over r, and over (c, s) together, of W[k][c][r][s] * X[n][c][row(p) + r][column(q) + s]. So the kernel that
copies operands to the workspace writes, for every column q of the output, the C x S elements that a row of the window covers
there, with zeros outside the image. For later code it is a convolution of C x S channels with windows of R x 1 and stride 1 along
columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gensor_gym.codegen.cuda.kernel import kernel_text
from gensor_gym.codegen.cuda.text import Writer, remainder, total
from gensor_gym.codegen.cuda.wgmma.convolution import ConvolutionPlan
from gensor_gym.codegen.kernel import LAYOUT, Launch
from gensor_gym.codegen.program import Program
from gensor_gym.graph.matrices.lying import is_folded
from gensor_gym.operators.types import Operator

THREADS = 256
"""Number of threads of a block. Each writes two 16-bit elements."""


def with_folded_rows(program: Program) -> Program:
    """Return the program with the positions of a window's row folded into the channel axis.

    The row's own axis then has extent 1.

    Accesses then refer to the operands in the workspace, not to the tensors. A program without folding is returned unchanged.
    """
    op = program.operator
    if not is_folded(op) or op.extents[op.reduce[-1]] == 1:
        return program
    channel, _, place = op.reduce
    column, together = op.spatial[-1], op.extents[channel] * op.extents[place]
    lengths = {channel: together, place: 1}
    axes = tuple(replace(axis, extent=lengths.get(a, axis.extent)) for a, axis in enumerate(op.axes))
    reads = []
    for read in op.reads:
        view, rows = [*read.view[:1], together, *read.view[2:]], [*read.coefficients]
        view[3] = op.extents[column] if rows[3][column] else 1
        rows[3] = tuple(int(a == place or (a == column and rows[3][column] > 0)) for a in range(len(axes)))
        reads.append(replace(read, view=tuple(view), coefficients=tuple(rows), offset=(*read.offset[:3], 0)))
    tiles = tuple(tuple(1 if a == place else t for a, t in enumerate(tile)) for tile in program.tiles)
    return replace(program, operator=op.renamed(axes=axes, reads=tuple(reads)), tiles=tiles)


@dataclass(frozen=True)
class Part:
    """One operand (image or weights) in the workspace, with a row for every index of `shape`.

    A row has `pitch` elements, of them `elements` are used.

    `offset` is in bytes. `names` are the C names of the indices. `first` is C text of the position of a row's first element in
    the tensor `name`, without its column. `steps` are the distances in the tensor to the next channel, and to the next of
    `places` positions of the window's row. For the image, `column` is C text of an element's column in its row of `width`
    elements. For weights, which are never outside, `width` is 0.
    """

    name: str
    offset: int
    shape: tuple[int, ...]
    names: tuple[str, ...]
    pitch: int
    elements: int
    places: int
    first: str
    steps: tuple[int, int]
    column: str = ""
    width: int = 0

    @property
    def words(self) -> int:
        """Number of 4-byte words. Each word is a pair of 16-bit elements."""
        return math.prod(self.shape) * self.pitch // 2

    @property
    def blocks(self) -> int:
        """Number of blocks of the launch that write this operand."""
        return -(-self.words // THREADS)


def folding_kernel(plan: ConvolutionPlan, op: Operator, entry: str) -> tuple[str, Launch]:
    """Return (text, launch) of the kernel that writes the folded operands to the workspace.

    `op` is the operator before folding.
    """
    image, weights = parts(plan, op)
    out = Writer(depth=1)
    out.line("unsigned *laid_out = reinterpret_cast<unsigned *>(workspace);")
    with out.block(f"if (blockIdx.x < {image.blocks})"):
        out.note("the image: of every column of the output what a row of the window meets")
        _write(out, image, "blockIdx.x")
    with out.block("else"):
        out.note("the weights: rows of the window side by side")
        _write(out, weights, f"(blockIdx.x - {image.blocks})")
    launch = Launch(f"{entry}{LAYOUT}", (image.blocks + weights.blocks, 1, 1), (THREADS, 1, 1), 0)
    return kernel_text(plan, launch.entry, out, str(THREADS), {}), launch


def parts(plan: ConvolutionPlan, op: Operator) -> tuple[Part, Part]:
    """Return the layout of the image and of the weights in the workspace."""
    image, weights = op.reads[plan.roles.b], op.reads[plan.roles.a]
    n, channels, height, width = image.view
    k, _, rows, places = weights.view
    q, place = op.spatial[-1], op.reduce[-1]
    columns, along = op.extents[q], image.coefficients[3]
    together, pitch = channels * places, plan.channels
    first = total([(channels * height * width, "image"), (width, "row")])
    column = total([(along[q], "column"), (along[place], "place")], image.offset[3])
    left = Part(
        image.tensor.name, plan.image_offset, (n, height, columns), ("image", "row", "column"), pitch, together, places, first,
        (height * width, 0), column, width,
    )  # fmt: skip
    first = total([(channels * rows * places, "output"), (places, "row")])
    right = Part(
        weights.tensor.name, plan.weights_offset, (rows, k), ("row", "output"), pitch, together, places, first,
        (rows * places, 1),
    )  # fmt: skip
    return left, right


def _write(out: Writer, part: Part, block: str) -> None:
    out.line(f"const int word = {block} * {THREADS} + threadIdx.x;")
    if part.words % THREADS:
        out.line(f"if (word >= {part.words}) return;")
    divisor = part.pitch // 2
    for name, length in reversed(list(zip(part.names, part.shape, strict=True))):
        out.line(f"const int {name} = {remainder('word', divisor, 0 if name == part.names[0] else length)};")
        divisor *= length
    out.line("unsigned pair = 0;")
    out.line("#pragma unroll")
    with out.block("for (int half = 0; half < 2; ++half)"):
        out.line(f"const int element = word % {part.pitch // 2} * 2 + half;")
        out.line(f"const int channel = element / {part.places}, place = element % {part.places};")
        channel, place = part.steps
        inside = [f"element < {part.elements}"]
        address = total([(1, part.first), (channel, "channel"), (place, "place")])
        if part.width:
            out.line(f"const int at = {part.column};")
            inside += ["at >= 0", f"at < {part.width}"]
            address = total([(1, address), (1, "at")])
        read = f"*reinterpret_cast<const unsigned short *>(&{part.name}[{address}])"
        out.line(f"if ({' && '.join(inside)}) pair |= static_cast<unsigned>({read}) << 16 * half;")
    out.line(f"laid_out[{total([(1, 'word')], part.offset // 4)}] = pair;")
