"""C text of a warp's work on one step of the reduction: loads of fragments from shared memory to registers, and multiply-adds.

Lane l of a warp has the elements of a 16 x 8 tile of sums in rows l / 4 and l / 4 + 8 and columns 2 (l % 4) and 2 (l % 4) + 1. Of
every 8 rows of A (along m) and of B (along n) it has row l / 4: the 4 bytes at offset 4 (l % 4) of every 16 bytes along k. These
are the layouts of mma.sync in the PTX ISA, and they are the same for all types.

`ldmatrix` cannot transpose B's elements of 8 and 32 bits. So a lane reads up to four adjacent elements along n, each for another
instruction. With four, column c of instruction j is column 4 c + j of 32, so that a lane's sums are eight adjacent elements.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from gensor_gym.codegen.cuda.index import in_tile, make_site, spatial_loops
from gensor_gym.codegen.cuda.mma.copy import shared_address
from gensor_gym.codegen.cuda.mma.plan import MatrixPlan, OperandTile
from gensor_gym.codegen.cuda.text import SCALARS, Loop, Writer, remainder, subscript, total


def write_sums(out: Writer, plan: MatrixPlan) -> None:
    """Write the declaration of the accumulators `sums`, with the value 0."""
    kind = SCALARS[plan.op.accumulator].name
    sizes = [f"REG_{plan.names[a].upper()}" for a in wide_repeats(plan)]
    out.line(f"{kind} {subscript('sums', [*sizes, 'M_TILES', 'N_TILES', '4'])} = {{}};")


def wide_repeats(plan: MatrixPlan) -> tuple[int, ...]:
    """Return the axes along which a warp repeats the matrix product.

    They are the first dimensions of `sums` and of fragments.
    """
    return tuple(a for a in plan.repeats if plan.register[a] > 1)


def repeat_indices(plan: MatrixPlan, tile: OperandTile | None = None) -> list[str]:
    """Return C subscripts along the axes that repeat the matrix product.

    If `tile` is given, only axes that index this operand have one.
    """
    return [f"reg_{plan.names[a]}" for a in wide_repeats(plan) if tile is None or a in tile.axes]


def write_step(out: Writer, plan: MatrixPlan, stage: str) -> None:
    """Write the multiply-adds of one step of the reduction, whose tiles are in the buffer of shared memory at byte `stage`."""
    out.line(f"const unsigned char *buffer = shared_memory{'' if stage == '0' else f' + {stage}'};")
    if plan.item != 2:
        kind, tile = SCALARS[plan.op.reads[plan.b_tile.read].tensor.dtype].name, plan.b_tile
        out.line(f"const {kind} *b_rows = reinterpret_cast<const {kind} *>(buffer + {tile.offset});")
    depth = ["2"] if plan.buffered else []
    for letter, tile, sizes in (
        ("a", plan.a_tile, ["M_TILES", str(2 * plan.units)]),
        ("b", plan.b_tile, ["N_TILES", str(plan.units)]),
    ):
        repeats = [f"REG_{plan.names[a].upper()}" for a in wide_repeats(plan) if a in tile.axes]
        if plan.buffered:
            out.line(f"unsigned {subscript(letter, [*depth, *repeats, *sizes])};")
    if plan.buffered:
        with out.block(""):
            _write_fragments(out, plan, "0", ["0"])
    with out.nest([Loop("point", "POINTS", 1, plan.unroll if plan.unroll < plan.fragment_points else 0)]):
        now = []
        if plan.buffered:
            with out.block("if (point + 1 < POINTS)"):
                out.line("const int next = point + 1;")
                _write_fragments(out, plan, "next", ["next % 2"])
            now = ["point % 2"]
        else:
            for letter, tile, sizes in (
                ("a", plan.a_tile, ["M_TILES", str(2 * plan.units)]),
                ("b", plan.b_tile, ["N_TILES", str(plan.units)]),
            ):
                repeats = [f"REG_{plan.names[a].upper()}" for a in wide_repeats(plan) if a in tile.axes]
                out.line(f"unsigned {subscript(letter, [*repeats, *sizes])};")
            _write_fragments(out, plan, "point" if plan.fragment_points > 1 else "0", [])
        _write_products(out, plan, now)


def _write_fragments(out: Writer, plan: MatrixPlan, point: str, buffer: list[str]) -> None:
    index = _point_indices(plan, point)
    _write_a(out, plan, index, buffer)
    if plan.item == 2:
        _write_b_transposed(out, plan, index, buffer)
    else:
        _write_b_gathered(out, plan, index, buffer)


def _point_indices(plan: MatrixPlan, point: str) -> dict[int, str]:
    """Return the index within the step along each reduce axis, as C text, for fragment `point` along the reduction.

    Along k, the index counts instructions.
    """
    depths = plan.block[plan.roles.k] // plan.depth
    index, divisor = {}, plan.fragment_points
    order = [*plan.places, plan.roles.k]
    live = [a for a in order if (depths if a == plan.roles.k else plan.block[a]) > 1]
    for a in order:
        count = depths if a == plan.roles.k else plan.block[a]
        divisor //= count
        place = remainder(point, divisor, 0 if live and a == live[0] else count) if a in live and point != "0" else "0"
        index[a] = place
    return index


def _row(plan: MatrixPlan, tile: OperandTile, index: dict[int, str], row: str, from_first: bool = False) -> str:
    """Return the C text of the number of a row in an operand's tile.

    Its index is that of the loops along the axes that repeat the product, and `row` along the axis of rows. With `from_first`,
    spatial indices are relative to the warp's first element.
    """
    site = make_site(plan)
    places = {a: in_tile(plan, a, site, from_first) if a in plan.op.spatial else index[a] for a in tile.axes[:-2]}
    return total([*((tile.row_stride(a), places[a]) for a in tile.axes[:-2]), (1, row)])


def _first_row(plan: MatrixPlan, tile: OperandTile, row: str) -> str:
    firsts = {a: _first(plan, a) for a in tile.axes[:-2] if a in plan.op.spatial}
    return total([*((tile.row_stride(a), first) for a, first in firsts.items()), (1, row)])


def _first(plan: MatrixPlan, axis: int) -> str:
    return f"first_{plan.names[axis]}" if plan.program.threads[axis] > 1 else "0"


def _variants(tile: OperandTile, units: int, count: int) -> int:
    """Return after how many pieces of a row the swizzle's pattern repeats, at most `count`.

    A piece has `units` units of 16 bytes.

    Addresses of later pieces are constant distances from the addresses of these pieces. Loops add rows in multiples of eight,
    after which the pattern repeats as well.
    """
    if tile.swizzle is None:
        return 1
    return max(1, min(count, (tile.swizzle.mask + 1) * tile.swizzle.factor // units))


def _b_groups(plan: MatrixPlan) -> list[tuple[int, int, int]]:
    """Divide the loads of B's 16-bit fragments by the size of the load.

    Return (matrices per load, number of loads, instructions along n that earlier loads serve).
    """
    found, done = [], 0
    for count in (4, 2, 1):
        together = count // plan.units
        groups = (plan.n_tiles - done) // together if together else 0
        if groups:
            found.append((count, groups, done))
            done += groups * together
    return found


def write_lanes(out: Writer, plan: MatrixPlan) -> None:
    """Write declarations, before the main loop, of the byte offsets at which a lane reads the tiles.

    There is one for A, and one per variant of the swizzle for B.
    """
    tile = plan.a_tile
    row = _first_row(plan, tile, total([(1, _first(plan, plan.roles.m)), (1, "lane % 16")]))
    out.line(f"const int a_row = {row};")
    column = "lane / 16" if plan.units == 2 else "0"
    place = shared_address(tile, plan.item, "a_row", _grouped(tile, total([(UNIT_OF[plan.item], column)])))
    out.line(f"const int a_lane = {total([(plan.item, place)])};  // in bytes")
    if plan.item != 2:
        return
    tile = plan.b_tile
    out.line(f"const int b_row = {_first_row(plan, tile, f'lane % {8 * plan.units}')};")
    for load, groups, done in _b_groups(plan):
        together = load // plan.units
        count = _variants(tile, together, groups)
        lanes = f"lane / {8 * plan.units}{f' % {together}' if load < 4 else ''}" if together > 1 else "0"
        out.line(f"int b_lane_x{load}[{count}];  // in bytes")
        with _scope(out, _loop("piece", count)):
            piece = "piece" if count > 1 else "0"
            column = total([(1, _first(plan, plan.roles.n)), (8 * together, piece), (8, lanes)], 8 * done)
            place = shared_address(tile, plan.item, "b_row", _grouped(tile, column))
            out.line(f"b_lane_x{load}[{piece}] = {total([(plan.item, place)])};")


def _split(piece: str, count: int) -> tuple[str, str]:
    if piece.isdigit():
        return str(int(piece) % count), str(int(piece) // count)
    inner = f"({piece})" if " " in piece else piece
    return (f"{inner} % {count}", f"{inner} / {count}") if count > 1 else ("0", piece)


def _write_a(out: Writer, plan: MatrixPlan, index: dict[int, str], buffer: list[str]) -> None:
    tile, k = plan.a_tile, plan.roles.k
    count = _variants(tile, plan.units, plan.block[k] // plan.depth)
    loops = spatial_loops(plan, tuple(a for a in wide_repeats(plan) if a in tile.axes))
    with _scope(out, [*loops, *_loop("tile_m", plan.m_tiles)]):
        tile_m = "tile_m" if plan.m_tiles > 1 else "0"
        row = _row(plan, tile, index, total([(16, tile_m)]), from_first=True)
        variant, turn = _split(index[k], count)
        nbytes = plan.depth * plan.item
        lane = "a_lane" if variant == "0" else f"(a_lane ^ {total([(nbytes, variant)])})"  # units of powers of two: no carry
        place = total([(1, lane), (count * nbytes, turn), (tile.pitch * plan.item, row)], tile.offset)
        target = subscript("a", [*buffer, *repeat_indices(plan, tile), tile_m])
        out.line(f"load_matrices_x{2 * plan.units}({target}, buffer + {_offset(place)});")


def _offset(place: str) -> str:
    return f"({place})" if " " in place else place


UNIT_OF = {item: 16 // item for item in (1, 2, 4)}
"""Size of an element in bytes -> number of elements in 16 bytes."""


def _grouped(tile: OperandTile, text: str) -> str:
    """Return the C text of an index, in parentheses if it is a sum that becomes an operand of the swizzle's xor."""
    return f"({text})" if tile.swizzle is not None and " " in text else text


def _loop(name: str, count: int) -> list[Loop]:
    return [Loop(name, str(count))] if count > 1 else []


def _scope(out: Writer, loops: list[Loop]) -> AbstractContextManager[None]:
    return out.nest(loops) if loops else out.block("")


def _b_loops(plan: MatrixPlan) -> list[Loop]:
    return spatial_loops(plan, tuple(a for a in wide_repeats(plan) if a in plan.b_tile.axes))


def _write_b_transposed(out: Writer, plan: MatrixPlan, index: dict[int, str], buffer: list[str]) -> None:
    """Write the loads of B's fragments of 16-bit elements.

    `ldmatrix` loads matrices of 8 rows along k and 8 columns, and transposes them. `index` has the current indices along the
    reduce axes.
    """
    tile, pitch = plan.b_tile, plan.b_tile.pitch * plan.item
    for load, groups, done in _b_groups(plan):
        together = load // plan.units  # instructions along n that one load serves
        count = _variants(tile, together, groups)
        with _scope(out, [*_b_loops(plan), *_loop("group", groups)]):
            group = "group" if groups > 1 else "0"
            row = _row(plan, tile, index, total([(plan.depth, index[plan.roles.k])]), from_first=True)
            variant, turn = _split(group, count)
            lane = f"b_lane_x{load}[{variant}]"
            place = total([(1, lane), (16 * together * count, turn), (pitch, row)], tile.offset)
            target = subscript("b", [*buffer, *repeat_indices(plan, tile), total([(together, group)], done)])
            out.line(f"load_transposed_x{load}({target}, buffer + {_offset(place)});")


def _write_b_gathered(out: Writer, plan: MatrixPlan, index: dict[int, str], buffer: list[str]) -> None:
    """Write the loads of B's fragments of 8- and 32-bit elements.

    A lane loads adjacent elements along n, each for another instruction. `index` has the current indices along the reduce axes.
    """
    tile, n, each = plan.b_tile, plan.roles.n, plan.interleave
    first = f"first_{plan.names[n]}" if plan.program.threads[n] > 1 else "0"
    groups = plan.n_tiles // each
    loops = [*_b_loops(plan), *_loop("group", groups), *_loop("unit", plan.units)]
    with _scope(out, loops):
        group = "group" if groups > 1 else "0"
        unit = "unit" if plan.units > 1 else "0"
        deep = UNIT_OF[plan.item]
        lane_row = "lane % 4" if plan.item == 4 else "lane % 4 * 4"
        along_k = total([(plan.depth, index[plan.roles.k]), (deep, unit), (1, lane_row)])
        out.line(f"const int row = {_row(plan, tile, index, along_k)};")
        out.line(f"const int column = {total([(1, first), (8 * each, group), (each, 'lane / 4')])};")
        targets = [
            subscript("b", [*buffer, *repeat_indices(plan, tile), total([(each, group)], j), unit]) for j in range(each)
        ]
        (_write_words if plan.item == 4 else _write_bytes)(out, plan, targets)


_VECTORS = {1: "unsigned", 2: "int2", 4: "int4"}


def _write_words(out: Writer, plan: MatrixPlan, targets: list[str]) -> None:
    tile = plan.b_tile
    place = shared_address(tile, plan.item, "row", "column")
    kind = _VECTORS[len(targets)]
    out.line(f"const {kind} words = *reinterpret_cast<const {kind} *>(&b_rows[{place}]);")
    for part, target in zip("xyzw", targets, strict=False):
        out.line(f"{target} = words{'' if len(targets) == 1 else f'.{part}'};")


def _write_bytes(out: Writer, plan: MatrixPlan, targets: list[str]) -> None:
    """Write the load of adjacent bytes along n of four rows.

    They are transposed to four bytes along k for each instruction.
    """
    tile = plan.b_tile
    kind = {1: "unsigned char", 2: "unsigned short", 4: "unsigned"}[len(targets)]
    out.line("unsigned rows[4];")
    with out.nest([Loop("i", "4")]):
        place = shared_address(tile, plan.item, "(row + i)", "column")
        out.line(f"rows[i] = *reinterpret_cast<const {kind} *>(&b_rows[{place}]);")
    for pair, (low, selector) in enumerate((("low", "0x5140"), ("high", "0x7362"))[: -(-len(targets) // 2)]):
        for i in (0, 2):
            out.line(f"const unsigned {low}_{i} = __byte_perm(rows[{i}], rows[{i + 1}], {selector});")
        for target, order in zip(targets[2 * pair : 2 * pair + 2], ("0x5410", "0x7632"), strict=False):
            out.line(f"{target} = __byte_perm({low}_0, {low}_2, {order});")


def _write_products(out: Writer, plan: MatrixPlan, buffer: list[str]) -> None:
    loops = spatial_loops(plan, wide_repeats(plan))
    a = subscript("a", [*buffer, *repeat_indices(plan, plan.a_tile), "tile_m"])
    b = subscript("b", [*buffer, *repeat_indices(plan, plan.b_tile), "tile_n"])
    sums = subscript("sums", [*repeat_indices(plan), "tile_m", "tile_n"])
    if plan.op.dtype == "tf32x3":
        _write_split_products(out, loops, a, b, sums)
        return
    order = [Loop("tile_m", "M_TILES"), Loop("tile_n", "N_TILES")]
    if plan.item != 2:  # registers of a gathered B are made adjacent before use: once for all instructions along m
        order.reverse()
    with out.nest([*loops, *order]):
        if plan.op.dtype == "int8" and plan.turing:
            for half in (0, 1):
                out.line(f"mma_8x8x16_int8({sums}{f' + {2 * half}' if half else ''}, {a}{f' + {half}' if half else ''}, {b});")
            return
        dtype = plan.op.dtype
        out.line(f"mma_16x8x{plan.depth}_{dtype}({sums}, {a}, {b});")


def _write_split_products(out: Writer, loops: list[Loop], a: str, b: str, sums: str) -> None:
    """Write products of operands that are split into high + low tf32: three products, the small ones first.

    Tensor cores round every sum towards zero. So they add up one point of the reduction only, and CUDA cores add its sum to the
    accumulators in float32, rounded to nearest.
    """
    with out.nest([*loops, Loop("tile_m", "M_TILES")]):
        out.line("unsigned a_high[4], a_low[4];")
        _write_split(out, "a", a, 4)
        with out.nest([Loop("tile_n", "N_TILES")]):
            out.line("unsigned b_high[2], b_low[2];")
            _write_split(out, "b", b, 2)
            out.line("float point_sums[4] = {};")
            for left, right in (("low", "high"), ("high", "low"), ("high", "high")):
                out.line(f"mma_16x8x8_tf32(point_sums, a_{left}, b_{right});")
            with out.nest([Loop("i", "4")]):
                out.line(f"{sums}[i] += point_sums[i];")


def _write_split(out: Writer, letter: str, word: str, count: int) -> None:
    with out.nest([Loop("i", str(count))]):
        out.line(f"const float whole = __int_as_float({word}[i]);")
        out.line(f"{letter}_high[i] = round_tf32(whole) & 0xffffe000u;")
        out.line(f"{letter}_low[i] = round_tf32(whole - __int_as_float({letter}_high[i]));")
