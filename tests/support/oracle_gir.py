"""The rules of fused operators' schedules a second time, a schedule at a time, from the words of `gir.rules` and `gir.placement`.

Nothing of the package's passes, lowering or rules is used: which pass needs what is found anew by asking who reads whom.
"""

from __future__ import annotations

from gensor_gym.gir.nest import Cell, RowNest
from gensor_gym.gir.schedule import FIELDS, HEADER, MOST_PLACED, GirSchedule
from gensor_gym.hardware.types import Hardware

DRAM, RECOMPUTE, SRAM, REG, ONLINE = range(5)


def is_legal(nest: RowNest, hardware: Hardware, schedule: GirSchedule) -> bool:
    """Whether a schedule is within the machine's limits and code can be written for it."""
    return _header_fits(nest, hardware, schedule) and _placement_fits(nest, hardware, schedule)


def _header_fits(nest: RowNest, hardware: Hardware, schedule: GirSchedule) -> bool:
    vector, tile, rows, loop, streaming = (schedule.value(field.name) for field in FIELDS)
    if vector > hardware.lanes or (vector > 1 and vector // 2 >= nest.columns):
        return False  # half of it would have done all columns
    if tile > 1 and (tile // 2) * vector >= nest.columns:
        return False
    if rows > nest.rows or rows * tile > 32:
        return False
    steps = (nest.rows + rows - 1) // rows
    if loop > 1 and max(value for value in FIELDS[3].values if value < loop) >= steps:
        return False
    return not streaming or (vector > 1 and any(to.column == 1 and nest.cell[name].wide for name, to in nest.stores))


def _placement_fits(nest: RowNest, hardware: Hardware, schedule: GirSchedule) -> bool:
    vector, tile, rows = (schedule.value(name) for name in ("vector", "tile", "rows"))
    levels = [int(level) for level in schedule.row[HEADER:]]
    if any(levels[len(nest.crossing) :]):
        return False
    placed = dict(zip(nest.crossing, levels, strict=False))
    if any(level == RECOMPUTE and nest.cell[name].is_load for name, level in placed.items()) or not may_be_online(nest, placed):
        return False
    if ONLINE in levels and (vector == 1 or vector * tile < 8):
        return False
    whole = sum(level == REG for level in levels)
    vectors = (nest.columns + vector - 1) // vector
    if whole and whole * vectors * rows + 2 * rows * tile > hardware.vector_registers - 4:
        return False
    row_bytes = 4 * 16 * ((nest.columns + 15) // 16)
    if levels.count(SRAM) * rows * row_bytes > hardware.level("l2").capacity // 2:
        return False
    return _outlives(nest, placed)


def may_be_online(nest: RowNest, placed: dict[str, int]) -> bool:
    """Whether what is placed so is exp(x - the maximum of x) of long rows, and is added up."""
    for name in (name for name, level in placed.items() if level == ONLINE):
        maxima = [cell for cell in nest.cells if cell.made == "max"]
        fits = [top for top in maxima if str(nest.cell[name].made) == f"exp({top.sources[0]} - {top.name})"]
        if not fits or nest.columns < 128 or not any(cell.made == "sum" and cell.sources == (name,) for cell in nest.cells):
            return False
    return True


def reduced(nest: RowNest, cell: Cell, placed: dict[str, int]) -> Cell:
    """What a reduction goes along: of an online sum that of which the maximum is taken."""
    source = nest.cell[cell.sources[0]]
    if cell.made == "sum" and placed.get(source.name) == ONLINE:
        return next(nest.cell[name] for name in source.sources if nest.cell[name].wide)
    return source


def stages(nest: RowNest, placed: dict[str, int]) -> dict[str, int]:
    """Of every cell how many reductions one after another it waits for."""
    found: dict[str, int] = {}
    for cell in nest.cells:
        sources = [reduced(nest, cell, placed).name] if cell.is_reduction else cell.sources
        found[cell.name] = max((found[name] for name in sources), default=0) + bool(cell.is_reduction)
    return found


def _outlives(nest: RowNest, placed: dict[str, int]) -> bool:
    """Whether what lies in a buffer or in registers is read by no later kernel than the one that makes it."""
    made, read_later = _life(nest, placed)
    ends = {made[name] for name in read_later if placed[name] == DRAM}
    kept = [name for name in read_later if placed[name] in (SRAM, REG)]
    if nest.parts > 1:  # what is reduced of parts is joined between passes
        ends = set(range(last_pass(nest, placed)))
    return not any(made[name] <= end < last for name in kept for end in ends for last in read_later[name])


def _life(nest: RowNest, placed: dict[str, int]) -> tuple[dict[str, int], dict[str, list[int]]]:
    """(the pass that makes each wide cell first, the later passes that read what it left)."""
    made: dict[str, int] = {}
    later: dict[str, list[int]] = {}
    stage = stages(nest, placed)
    for number in range(last_pass(nest, placed) + 1):
        ends = [reduced(nest, cell, placed) for cell in nest.cells if cell.is_reduction and stage[cell.name] == number + 1]
        ends += [nest.cell[name] for name, _ in nest.stores if nest.cell[name].wide and stage[name] == number]
        fresh: set[str] = set()
        waiting = list(ends)
        while waiting:
            cell = waiting.pop()
            if not cell.wide or cell.name in fresh:
                continue
            if cell.name in made and _is_kept(cell, placed):
                later.setdefault(cell.name, []).append(number)
                continue
            fresh.add(cell.name)
            waiting += [nest.cell[source] for source in cell.sources]
        for name in fresh:
            made.setdefault(name, number)
    return made, later


def last_pass(nest: RowNest, placed: dict[str, int]) -> int:
    """The number of the last way along the columns."""
    stage = stages(nest, placed)
    return max((stage[cell.name] for cell in nest.cells if cell.wide), default=0)


def _is_kept(cell: Cell, placed: dict[str, int]) -> bool:
    """Whether a later pass finds it where the first left it."""
    level = placed.get(cell.name, RECOMPUTE)
    return level in (SRAM, REG) or (level == DRAM and not cell.is_load)


assert len(FIELDS) == HEADER and MOST_PLACED == 16
