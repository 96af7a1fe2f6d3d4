"""C text of the kernel that transposes B[k, n] to [n, k] in the workspace, before a wgmma product that needs rows of k.

A block loads a tile of B into shared memory as words of 4 bytes. A word is one float, or the four bytes of a column in four rows
of k; for those, a thread reads four words along n and transposes them in registers. The tile's rows are columns of B. They are an
odd number of words apart, so that neither the writes nor the reads of a warp have bank conflicts.

Turning the tiles of B in the shared memory of the product's kernel would gain nothing, by arithmetic. Take a step of 128 bytes
along k for a block tile of 128 x 256 with two consumers, and an H100, whose tensor cores multiply 1024 pairs of tf32 (4096 of 8
bits) a cycle and whose shared memory moves 128 bytes a cycle. The step takes the tensor cores 1024 cycles. In it, wgmma reads 80
KB (each consumer its 8 KB of A and all 32 KB of B), 640 cycles. Turning would read and write B once more, 64 KB, 512 cycles. So
shared memory would take 1152 cycles, 1.13 of the step, without any bank conflict, barrier or byte permutation. For 128 x 128 it
is 640 of 512 cycles, 1.25. The first kernel moves 2 x 64 MB for tf32 products of 4096 cubed: about 0.045 ms at 3 TB/s, 14 % of
the 0.32 ms of the product at 0.88 of the peak, about as much. Its share falls with the rows of A, that of turning in shared
memory does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gensor_gym.codegen.cuda.kernel import kernel_text
from gensor_gym.codegen.cuda.text import Loop, Writer, remainder, total
from gensor_gym.codegen.cuda.wgmma.rows import RowsPlan
from gensor_gym.codegen.kernel import LAYOUT, Launch

THREADS = 256
"""Number of threads of a block."""
WORD = 4
"""Bytes of a word."""
TILE_WORDS = 4096
"""Number of words of a tile: 16 for each thread."""


@dataclass(frozen=True)
class Turn:
    """Transposition of `batches` matrices B[k, n] with elements of `item` bytes, 4 or 1, to [n, k].

    A column of B is a whole number of words of 4 bytes.
    """

    name: str
    batches: int
    k: int
    n: int
    item: int

    @property
    def packed(self) -> int:
        """Number of elements in a word of 4 bytes."""
        return WORD // self.item

    @property
    def words(self) -> int:
        """Number of words in a row of the transposed matrix."""
        return self.k // self.packed

    @property
    def across(self) -> int:
        """Number of columns of the tile that a block transposes. Bytes are read as words of four columns."""
        return 64 if self.packed == 1 else 128

    @property
    def down(self) -> int:
        """Number of words along k of the tile that a block transposes."""
        return TILE_WORDS // self.across

    @property
    def pitch(self) -> int:
        """Number of words from one column of the tile to the next in shared memory."""
        return self.down + 1

    @property
    def grid(self) -> tuple[int, int, int]:
        """Numbers of blocks: (matrices, tiles along k, tiles along n)."""
        return self.batches, -(-self.words // self.down), -(-self.n // self.across)


def turn_of(plan: RowsPlan) -> Turn:
    """Return the transposition that a plan's operand B needs."""
    *batch, n, k = plan.b_shape
    return Turn(plan.mapped[1], math.prod(batch), k, n, plan.item)


def transpose_kernel(plan: RowsPlan, entry: str) -> tuple[str, Launch]:
    """Return (text, launch) of the kernel that transposes B."""
    turn, out = turn_of(plan), Writer(depth=1)
    out.line(f"unsigned *turned = reinterpret_cast<unsigned *>(workspace) + {plan.b_offset // WORD};")
    out.line("unsigned *tile = reinterpret_cast<unsigned *>(shared_memory);")
    _, down, across = turn.grid
    block = remainder("blockIdx.x", across, down if turn.batches > 1 else 0)
    out.line(f"const int first_word = {f'{block} * {turn.down}' if down > 1 else '0'};")
    out.line(f"const int first_column = {f'blockIdx.x % {across} * {turn.across}' if across > 1 else '0'};")
    batch = remainder("blockIdx.x", down * across, 0) if turn.batches > 1 else "0"
    out.line(f"const int batch = {batch};")
    if turn.packed == 1:
        _write_words_in(out, turn)
    else:
        _write_bytes_in(out, turn)
    out.line("__syncthreads();")
    _write_out(out, turn)
    launch = Launch(f"{entry}{LAYOUT}", (math.prod(turn.grid), 1, 1), (THREADS, 1, 1), turn.across * turn.pitch * WORD)
    return kernel_text(plan, launch.entry, out, str(THREADS), {}), launch


def _write_words_in(out: Writer, turn: Turn) -> None:
    """Write the loads of a tile of 4-byte elements to shared memory. Consecutive threads read adjacent elements along n."""
    with _turns(out, TILE_WORDS):
        out.line(f"const int word = part / {turn.across}, at = part % {turn.across};")
        out.line("const int k = first_word + word, column = first_column + at;")
        address = total([(turn.k * turn.n, "batch"), (turn.n, "k"), (1, "column")])
        value = f"reinterpret_cast<const unsigned *>({turn.name})[{address}]"
        out.line(f"tile[at * {turn.pitch} + word] = k < {turn.k} && column < {turn.n} ? {value} : 0;")


def _write_bytes_in(out: Writer, turn: Turn) -> None:
    """Write the loads of a tile of bytes to shared memory.

    A thread loads four columns of four rows. A warp is eight threads along n by four threads along k.
    """
    with _turns(out, TILE_WORDS // 4):
        across = turn.across // 4
        out.line(f"const int at = part % 8 * 4 + part / 32 % {across // 8} * 32, word = part / 8 % 4 + part / {across * 4} * 4;")
        out.line("const int first = (first_word + word) * 4, column = first_column + at;")
        out.line("unsigned rows[4] = {};")
        with out.nest([Loop("i", "4")]):
            address = total([(turn.k * turn.n, "batch"), (turn.n, "first + i"), (1, "column")])
            _write_row_of_bytes(out, turn, address)
        for name, selector in (("low", "0x5140"), ("high", "0x7362")):
            for pair in (0, 2):
                out.line(f"const unsigned {name}_{pair} = __byte_perm(rows[{pair}], rows[{pair + 1}], {selector});")
        for column, (name, selector) in enumerate((n, s) for n in ("low", "high") for s in ("0x5410", "0x7632")):
            value = f"__byte_perm({name}_0, {name}_2, {selector})"
            out.line(f"tile[(at + {column}) * {turn.pitch} + word] = {value};")


def _write_row_of_bytes(out: Writer, turn: Turn, address: str) -> None:
    inside = f"first + i < {turn.k} && column"
    if turn.n % 4 == 0:
        with out.guarded([f"{inside} < {turn.n}"]):
            out.line(f"rows[i] = *reinterpret_cast<const unsigned *>(&{turn.name}[{address}]);")
        return
    with out.nest([Loop("lane", "4")]), out.guarded([f"{inside} + lane < {turn.n}"]):
        out.line(f"rows[i] |= static_cast<unsigned>(static_cast<unsigned char>({turn.name}[{address} + lane])) << 8 * lane;")


def _write_out(out: Writer, turn: Turn) -> None:
    """Write the stores of a transposed tile. Consecutive threads write adjacent words along k."""
    with _turns(out, TILE_WORDS):
        out.line(f"const int at = part / {turn.down}, word = part % {turn.down};")
        out.line("const int column = first_column + at, place = first_word + word;")
        with out.guarded([f"column < {turn.n}", f"place < {turn.words}"]):
            address = total([(turn.n * turn.words, "batch"), (turn.words, "column"), (1, "place")])
            out.line(f"turned[{address}] = tile[at * {turn.pitch} + word];")


@contextmanager
def _turns(out: Writer, count: int) -> Iterator[None]:
    """Write a loop over this thread's share of `count` parts around the `with` block; `part` is the index of the current part."""
    with out.nest([Loop("turn", str(count // THREADS))]):
        out.line(f"const int part = turn * {THREADS} + threadIdx.x;")
        yield
