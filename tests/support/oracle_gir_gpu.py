"""The rules of fused operators' schedules on a GPU a second time, a schedule at a time, in plain numbers.

What is legal of a placement whatever the machine is taken from `oracle_gir`.
"""

from __future__ import annotations

from gensor_gym.gir.nest import Access, RowNest
from gensor_gym.gir.schedule import FIELDS, HEADER, GirSchedule
from gensor_gym.hardware.types import Hardware
from tests.support import oracle_gir
from tests.support.oracle_gir import DRAM, RECOMPUTE, REG, SRAM


def block(nest: RowNest, schedule: GirSchedule, most: int) -> tuple[int, int, int]:
    """(lanes of a row, rows of a step, steps along the columns)."""
    own = schedule.value("tile") * schedule.value("vector")
    lanes = 1
    while lanes * own < nest.columns and lanes * 2 * schedule.value("rows") <= most:
        lanes *= 2
    rows = schedule.value("rows")
    if lanes < 32:
        rows *= 32 // lanes
    return lanes, rows, (nest.columns + lanes * own - 1) // (lanes * own)


def is_legal(nest: RowNest, hardware: Hardware, schedule: GirSchedule) -> bool:
    """Whether a schedule is within the machine's limits and code can be written for it."""
    vector, tile, rows, loop, streaming = (schedule.value(name) for name in ("vector", "tile", "rows", "loop", "streaming"))
    placed = dict(zip(nest.crossing, (int(level) for level in schedule.row[HEADER:]), strict=False))
    if any(schedule.row[HEADER + len(nest.crossing) :]) or vector > 4:
        return False
    if any(level == RECOMPUTE and nest.cell[name].is_load for name, level in placed.items()):
        return False
    if not oracle_gir.may_be_online(nest, placed):
        return False
    lanes, of_step, steps = block(nest, schedule, hardware.threads_per_block)
    too_wide = (vector > 1 and vector // 2 >= nest.columns) or (tile > 1 and tile // 2 * vector >= nest.columns)
    if too_wide or (rows > 1 and of_step // 2 >= nest.rows):
        return False
    if streaming and not any(to.column == 1 and nest.cell[name].wide for name, to in nest.stores):
        return False
    threads, levels = lanes * of_step, list(placed.values())
    loads = [number for cell in nest.cells if cell.wide and isinstance(cell.made, Access) for number in nest.uses[cell.name]]
    live = max([2, *(loads.count(number) for number in loads)])
    registers = 40 + tile * vector * (live + levels.count(REG) * steps)
    if registers > 255 or registers * threads > hardware.registers_per_unit:
        return False
    if shared(nest, schedule, hardware) > hardware.shared_per_block or not oracle_gir._outlives(nest, placed):
        return False
    along = steps if _one_pass(nest, placed) else 1
    whole = along * ((nest.rows + of_step - 1) // of_step)
    values = FIELDS[3].values
    return loop == 1 or values[values.index(loop) - 1] < whole


def shared(nest: RowNest, schedule: GirSchedule, hardware: Hardware) -> int:
    """Bytes of shared memory of a block at most."""
    lanes, of_step, _ = block(nest, schedule, hardware.threads_per_block)
    wide = lanes * schedule.value("tile") * schedule.value("vector")
    buffers = sum(int(level) == SRAM for level in schedule.row[HEADER:])
    turned: set[Access] = set()
    for cell in nest.cells:
        if cell.wide and isinstance(cell.made, Access):
            turned.add(cell.made)
    turned |= {to for name, to in nest.stores if nest.cell[name].wide}
    across = [a for a in turned if a.column > 1 and nest.row_extents and a.rows[-1] == 1 and nest.row_extents[-1] > 1]
    tiles = len(across) * of_step * (wide + 1) if of_step > 1 else 0
    sums = sum(cell.is_reduction for cell in nest.cells) * (lanes * of_step // 32)
    return 4 * (buffers * of_step * 16 * ((nest.columns + 15) // 16) + tiles + sums)


def _one_pass(nest: RowNest, placed: dict[str, int]) -> bool:
    """Whether a kernel has one pass alone."""
    made, later = oracle_gir._life(nest, placed)
    ends = {made[name] for name in later if placed[name] == DRAM} | {oracle_gir.last_pass(nest, placed)}
    return any(end == 0 or end - 1 in ends for end in ends)
