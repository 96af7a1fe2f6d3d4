"""CUDA text for a chain's kernel that finds a block's batch element and rows, and that stores the block's output."""

from __future__ import annotations

from gensor_gym.chains.chain import Matrix
from gensor_gym.codegen.c.text import linear
from gensor_gym.codegen.chains.cuda.between import Between
from gensor_gym.codegen.chains.cuda.plan import Plan
from gensor_gym.codegen.chains.cuda.products import TILE_M
from gensor_gym.codegen.cuda.text import SCALARS, Loop, Writer
from gensor_gym.codegen.gir.rows import c_name


def write_element(out: Writer, plan: Plan) -> None:
    """Write declarations of the batch element that a block computes, `element`, and of its first row, `first_row`.

    If rows see keys up to a diagonal, `seen_tiles` is the number of tiles of keys that the block needs. Blocks with more tiles
    come first, so that the last blocks to run are short.
    """
    if plan.chain.diagonal is None:
        out.line("const int element = blockIdx.x / PARTS, first_row = blockIdx.x % PARTS * BLOCK_ROWS;")
        return
    out.line("const int element = blockIdx.x / PARTS, first_row = (PARTS - 1 - blockIdx.x % PARTS) * BLOCK_ROWS;")
    out.line("const int seen_tiles = min(TILES, (first_row + BLOCK_ROWS + DIAGONAL + KEYS - 1) / KEYS);")


def write_start(out: Writer, plan: Plan, name: str, matrix: Matrix) -> None:
    """Write the declaration of the pointer `name` to the first element of a matrix, for the block's batch element."""
    chain = plan.chain
    below, digits = 1, list[str]()
    for axis in reversed(range(len(chain.batch))):
        digit = "element" if below == 1 else f"element / {below}"
        digits.insert(0, f"static_cast<long long>({f'{digit} % {chain.batch[axis]}' if axis else digit})")
        below *= chain.batch[axis]
    made = matrix is chain.out
    tensor = c_name(chain.graph.returns[0] if made else matrix.tensor)
    place = linear(zip(matrix.batch, digits, strict=True), matrix.offset)
    kind = f"{'' if made else 'const '}{SCALARS[chain.dtype].name}"
    out.line(f"{kind} *const {name} = {tensor if place == '0' else f'{tensor} + {place}'};")


def write_output(out: Writer, plan: Plan, between: Between) -> None:
    """Write the stores of a lane's sums to the output, two at a time if they are adjacent in memory."""
    chain, factor = plan.chain, between.factor()
    columns = chain.products[1].columns
    pairs = columns % 2 == 0 and all(step % 2 == 0 for step in (chain.out.row, chain.out.offset, *chain.out.batch))
    with out.nest([TILE_M, Loop("half", "2")]):
        out.line("const int row = first_row + (warp * M_TILES + tile_m) * 16 + half * 8 + lane / 4;")
        out.line(f"const float factor = {factor};" if factor else "const float factor = 1.0f;")
        with out.guarded(["row < ROWS"] if chain.rows % plan.rows else []), out.nest([Loop("tile_out", "OUT_TILES")]):
            out.line("const int column = tile_out * 8 + lane % 4 * 2;")
            out.line(f"const float *const two = &{plan.sum('2 * half')};")
            at = f"made + static_cast<long long>(row) * {chain.out.row} + column"
            full = columns == plan.room.out
            if pairs:
                with out.guarded([] if full else [f"column < {columns}"]):
                    pair = f"pack_{chain.dtype}(two[0] * factor, two[1] * factor)"
                    out.line(f"*reinterpret_cast<unsigned *>({at}) = {pair};")
            else:
                for i in (0, 1):
                    with out.guarded([f"column + {i} < {columns}"]):
                        out.line(f"({at})[{i}] = to_{chain.dtype}(two[{i}] * factor);")
