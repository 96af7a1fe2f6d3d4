"""CUDA text of a chain's products on a tile of keys, with `ldmatrix` and `mma.sync` (layouts: `codegen/cuda/mma/compute.py`).

Scores never leave the registers. Lane l has columns 2 (l % 4) and 2 (l % 4) + 1 of rows l / 4 and l / 4 + 8 of every
instruction's 16 x 8 scores. The scores of two adjacent instructions, rounded in pairs, are then the lane's fragment of the
second product's 16 x 16 left operand.
"""

from __future__ import annotations

from gensor_gym.chains.gpu.tiles import DEPTH, HEIGHT, ITEM
from gensor_gym.codegen.chains.cuda.plan import Plan, Tile
from gensor_gym.codegen.cuda.text import Loop, Writer, total

TILE_M = Loop("tile_m", "M_TILES")


def write_lanes(out: Writer, plan: Plan) -> None:
    """Write declarations of the byte offsets at which a lane reads with `ldmatrix`.

    One is for the left operand, one for tiles of each right operand.
    """
    height = plan.value("heights") * HEIGHT
    row = f"(warp * {height} + lane % 16)"
    out.line(f"const int left_lane = {ITEM} * ({row} * {plan.left.pitch} + lane / 16 * 8);")
    for tile in plan.rights:
        rows, columns = ("lane % 16", "lane / 16 * 8") if tile.deep else ("(lane / 16 * 8 + lane % 8)", "lane / 8 % 2 * 8")
        out.line(f"const int {tile.name}_lane = {tile.offset} + {ITEM} * ({rows} * {tile.pitch} + {columns});")


def write_left(out: Writer, plan: Plan, target: str, point: str) -> None:
    """Write the load of the left operand's fragment for one instruction to `target`.

    `point` is the index of the instruction along the reduction.
    """
    place = total([(1, "left_lane"), (ITEM * HEIGHT * plan.left.pitch, "tile_m"), (ITEM * DEPTH, point)])
    out.line(f"load_matrices_x4({target}, shared_memory + ({place}));")


def _write_right(out: Writer, tile: Tile, point: str, pair: str) -> None:
    steps = (DEPTH * tile.pitch, 16) if tile.deep else (DEPTH, 16 * tile.pitch)
    place = total([(1, f"{tile.name}_lane"), (ITEM * steps[0], point), (ITEM * steps[1], pair)])
    out.line("unsigned b[4];")
    out.line(f"load_{'transposed' if tile.deep else 'matrices'}_x4(b, shared_memory + (buffer + {place}));")


def write_scores(out: Writer, plan: Plan) -> None:
    """Write the first product for one tile of keys, with the declaration of its scores."""
    out.line("float scores[M_TILES][KEY_TILES][4] = {};")
    with out.nest([Loop("point", "POINTS")]):
        left = "left_rows[tile_m][point]"
        if not plan.value("hold"):
            out.line("unsigned rows[M_TILES][4];")
            with out.nest([TILE_M]):
                write_left(out, plan, "rows[tile_m]", "point")
            left = "rows[tile_m]"
        with out.nest([Loop("pair", "KEY_TILES / 2")]):
            _write_right(out, plan.rights[0], "point", "pair")
            _write_pair(out, plan, "scores", left)


def _write_pair(out: Writer, plan: Plan, sums: str, left: str) -> None:
    with out.nest([TILE_M]):
        for half in (0, 1):
            place = f"{sums}[tile_m][2 * pair{f' + {half}' if half else ''}]"
            out.line(f"mma_16x8x16_{plan.chain.dtype}({place}, {left}, b{f' + {2 * half}' if half else ''});")


def write_second(out: Writer, plan: Plan) -> None:
    """Write the second product for one tile of keys.

    The weights, which have replaced the scores, are multiplied by the tile of the right operand.
    """
    with out.nest([Loop("point", "KEY_TILES / 2")]):
        out.line("unsigned weights[M_TILES][4];")
        with out.nest([TILE_M, Loop("i", "4")]):
            out.line("const float *const two = scores[tile_m][2 * point + i / 2] + i % 2 * 2;")
            out.line(f"weights[tile_m][i] = pack_{plan.chain.dtype}(two[0], two[1]);")
        with out.nest([Loop("pair", "OUT_TILES / 2")]):
            _write_right(out, plan.rights[1], "point", "pair")
            _write_pair(out, plan, "sums", "weights[tile_m]")
