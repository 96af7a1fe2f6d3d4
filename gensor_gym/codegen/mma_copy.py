"""Text that copies the operands' tiles of a step into shared memory, with zeros for what lies outside."""

from __future__ import annotations

import math
from contextlib import ExitStack

from gensor_gym.codegen.cuda_index import flat, origin
from gensor_gym.codegen.cuda_text import SCALARS, Loop, Writer, remainder, total
from gensor_gym.codegen.mma_plan import MatrixPlan, OperandTile

UNROLLED = 8
"""Copies of one thread in one body of their loop: more addresses would only take registers."""
_WORDS = {1: "int", 2: "int2", 4: "int4"}


def shared_address(tile: OperandTile, item: int, row: str, column: str) -> str:
    """Element at a row and a column of a tile, as C text."""
    if tile.swizzle is not None:
        shift, mask = tile.swizzle.shift, tile.swizzle.mask
        scale = (16 // item * tile.swizzle.factor).bit_length() - 1
        column = f"({column} ^ (({row} >> {shift} & {mask}) << {scale}))"
    return total([(tile.pitch, row), (1, column)])


def write_held(out: Writer, plan: MatrixPlan) -> None:
    """Registers for what is on its way to shared memory while the block multiplies."""
    for tile in (plan.a_tile, plan.b_tile):
        if tile.way == "held":
            name = plan.op.reads[tile.read].tensor.name
            out.line(f"{_word(plan, tile)} {name}_held[{_trips(plan, tile)}];")


def write_copies(out: Writer, plan: MatrixPlan, stage: str, held: bool) -> None:
    """Copies of both tiles to buffer number `stage`; where `held`, what goes through registers stays there for now."""
    for tile in (plan.a_tile, plan.b_tile):
        _write_tile(out, plan, tile, stage, held and tile.way == "held")


def write_puts(out: Writer, plan: MatrixPlan, stage: str) -> None:
    """What was held in registers goes to buffer number `stage`."""
    for tile in (plan.a_tile, plan.b_tile):
        if tile.way != "held":
            continue
        name = plan.op.reads[tile.read].tensor.name
        with ExitStack() as stack:
            box = _enter(out, plan, tile, stack, ["put"])
            target = _element(plan, tile, f"{name}_tile[{_target(plan, tile, box, stage)}]")
            out.line(f"{target} = {name}_held[{_trip(plan, tile)}];")


def _write_tile(out: Writer, plan: MatrixPlan, tile: OperandTile, stage: str, held: bool) -> None:
    """Copies of one tile."""
    read = plan.op.reads[tile.read]
    name, kind = read.tensor.name, _word(plan, tile)
    width = f"{tile.width} elements" if tile.width > 1 else "one element"
    out.note(f"{name}: {' x '.join(map(str, tile.shape))}, {width} a copy")
    with ExitStack() as stack:
        box = _enter(out, plan, tile, stack, ["copy"])
        indices = [total([(1, origin(plan, a)), (1, box.get(a, "0"))]) for a in range(len(plan.names))]
        conditions = plan.conditions(tile, indices)
        source, target = f"{name}[{flat(read, indices)}]", f"{name}_tile[{_target(plan, tile, box, stage)}]"
        if tile.way == "async":
            inside = " && ".join(conditions) or "true"
            nbytes = tile.width * plan.item
            out.line(f"copy_async<{nbytes}>(&{target}, &{source}, {inside});")
            return
        value = _element(plan, tile, source, "const ")
        if conditions:
            value = f"{' && '.join(conditions)} ? {value} : {'0' if kind not in ('int2', 'int4') else kind + '{}'}"
        out.line(f"{f'{name}_held[{_trip(plan, tile)}]' if held else _element(plan, tile, target)} = {value};")


def _enter(out: Writer, plan: MatrixPlan, tile: OperandTile, stack: ExitStack, names: list[str]) -> dict[int, str]:
    """Open the loop over a thread's copies and say where in the tile the copy stands: index by axis."""
    (number,) = names
    trips = _trips(plan, tile)
    unroll = UNROLLED if tile.way != "held" and trips > UNROLLED else 0
    stack.enter_context(out.nest([Loop("trip", str(trips), 1, unroll)]) if trips > 1 else out.block(""))
    out.line(f"const int {number} = {total([(1, 'thread'), (1, 'trip * THREADS' if trips > 1 else '0')])};")
    full = f"trip < {trips - 1} || " if 1 < trips and not unroll else ""  # known once unrolled
    stack.enter_context(out.guarded([f"{full}{number} < {tile.copies}"] if tile.copies % plan.threads else []))
    return _box(out, plan, tile, number)


def _box(out: Writer, plan: MatrixPlan, tile: OperandTile, number: str) -> dict[int, str]:
    """Index of copy `number` along the tile's axes, the axis whose neighbours lie closest in the tensor fastest."""
    strides = plan.op.reads[tile.read].axis_strides()
    inner = tile.axes[-1]
    counts = dict(zip(tile.axes, tile.shape, strict=True))
    counts[inner] //= tile.width
    order = sorted(tile.axes, key=lambda a: (strides[a], a != inner), reverse=True)
    live = [a for a in order if counts[a] > 1]
    box, divisor = {}, math.prod(counts.values())
    for a in live:
        divisor //= counts[a]
        place = remainder(number, divisor, 0 if a == live[0] else counts[a])
        scale = f" * {tile.width}" if a == inner and tile.width > 1 else ""
        out.line(f"const int box_{plan.names[a]} = {place}{scale};")
        box[a] = f"box_{plan.names[a]}"
    return box


def _target(plan: MatrixPlan, tile: OperandTile, box: dict[int, str], stage: str) -> str:
    """Element of the tile, in buffer number `stage`, where the copy at `box` begins."""
    row = total((tile.row_stride(a), box.get(a, "0")) for a in tile.axes[:-1])
    if tile.swizzle is not None and " " in row:
        row = f"({row})"
    place = shared_address(tile, plan.item, row, box.get(tile.axes[-1], "0"))
    return total([(tile.stage // plan.item, stage), (1, place)])


def _trips(plan: MatrixPlan, tile: OperandTile) -> int:
    """Copies of one thread."""
    return -(-tile.copies // plan.threads)


def _trip(plan: MatrixPlan, tile: OperandTile) -> str:
    """Number of a thread's copy."""
    return "trip" if _trips(plan, tile) > 1 else "0"


def _word(plan: MatrixPlan, tile: OperandTile) -> str:
    """C type of what one copy moves."""
    return SCALARS[plan.op.reads[tile.read].tensor.dtype].name if tile.width == 1 else _WORDS[tile.width * plan.item // 4]


def _element(plan: MatrixPlan, tile: OperandTile, element: str, const: str = "") -> str:
    """An element, or the word that begins there where a copy moves several."""
    return element if tile.width == 1 else f"*reinterpret_cast<{const}{_word(plan, tile)} *>(&{element})"
