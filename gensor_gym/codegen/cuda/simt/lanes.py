"""C text of a thread's position in its block: its first element along every spatial axis.

Thread indices run fastest over the threads that share an output, then along the innermost spatial axis. Knob `warp_tile` instead
arranges the 32 lanes of a warp in a patch of the last two axes. Knob `lane_map` orders the lanes within the patch so that eight
consecutive lanes, which a 128-bit shared load serves together, need few different elements of either operand.
"""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.codegen.cuda.plan import BlockPlan
from gensor_gym.codegen.cuda.text import Writer, remainder, total

PATCH = 32
"""Number of threads in a patch: a warp, or half a wave of 64."""
PATCHES = {1: (4, 8), 2: (8, 4), 3: (2, 16)}
"""(rows, columns) of threads in a patch, by the value of knob `warp_tile`."""
TOGETHER = 8
"""Number of lanes whose 128-bit shared loads are served together."""


@dataclass(frozen=True)
class Patch:
    """The threads of a warp arranged as a patch of `rows` x `columns` along the last two spatial axes.

    A block has `grid` patches along these axes.
    """

    rows: int
    columns: int
    grid: tuple[int, int]


def patch_of(plan: BlockPlan) -> Patch | None:
    """Return the patch that knob `warp_tile` selects.

    None if warps are in row order, threads share outputs, or the block is not whole patches.
    """
    shape = PATCHES.get(plan.program.knob("warp_tile"))
    if shape is None or len(plan.op.spatial) < 2 or plan.reduce_threads > 1:
        return None
    threads = [plan.program.threads[a] for a in plan.op.spatial[-2:]]
    if threads[0] % shape[0] or threads[1] % shape[1]:
        return None
    return Patch(*shape, (threads[0] // shape[0], threads[1] // shape[1]))


def write_lanes(out: Writer, plan: BlockPlan) -> None:
    """Write declarations of `first_<axis>`, the thread's first element along a spatial axis.

    Only axes along which the block has several threads have one.
    """
    patch = patch_of(plan)
    if patch is None:
        _write_in_rows(out, plan, plan.op.spatial, "thread", plan.threads)
        return
    out.line(f"const int warp = thread / {PATCH}, lane = thread % {PATCH};")
    row, column = plan.op.spatial[-2:]
    _write_in_rows(out, plan, plan.op.spatial[:-2], "warp", plan.threads // PATCH)
    lane_row, lane_column = _lane(plan.program.knob("lane_map"), patch)
    rows, columns = patch.grid
    outer = plan.threads > PATCH * rows * columns
    warp_row = remainder("warp", columns, rows if outer else 0) if rows > 1 else "0"
    warp_column = remainder("warp", 1, columns) if columns > 1 else "0"
    for axis, size, warp, lane in ((row, patch.rows, warp_row, lane_row), (column, patch.columns, warp_column, lane_column)):
        place = total([(size, warp), (1, lane)])
        out.line(f"const int first_{plan.names[axis]} = {total([(plan.inner[axis], place)])};")


def _lane(interleaved: int, patch: Patch) -> tuple[str, str]:
    """Return the C texts of a lane's row and column in the patch; `interleaved` is knob `lane_map`."""
    if not interleaved:
        return f"lane / {patch.columns}", f"lane % {patch.columns}"
    beside = max(2, TOGETHER // patch.rows)  # columns of the eight lanes, which take all rows of the patch, up to 4
    rows = TOGETHER // beside
    higher = patch.rows // rows
    row = remainder("lane", beside, rows)
    column = f"lane % {beside}"
    if higher > 1:
        row = f"{row} + lane / {TOGETHER} % {higher} * {rows}"
    strips = total([(beside, remainder("lane", TOGETHER * higher, 0))])
    return row, f"{column} + {strips}" if patch.columns > beside else column


def _write_in_rows(out: Writer, plan: BlockPlan, axes: tuple[int, ...], index: str, count: int) -> None:
    """Write declarations of `first_<axis>`, the thread's first element, from the digits of `index`, with the last axis fastest.

    The index is below `count`.
    """
    live = [a for a in axes if plan.program.threads[a] > 1]
    for a in live:
        threads, name = plan.program.threads[a], plan.names[a]
        count //= threads
        place = remainder(index, count, 0 if a == live[0] else threads)
        scale = f" * {plan.inner[a]}" if plan.inner[a] > 1 else ""
        out.line(f"const int first_{name} = {place}{scale};")
