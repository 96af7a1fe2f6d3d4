"""C text of the end of a wgmma kernel whose output TMA stores: epilogue, `stmatrix`, and stores of boxes.

A warp has the sums of 16 rows as 8 x 8 matrices, two adjacent columns in a lane. One `stmatrix.x4` stores two by two matrices:
lane 8 i + r has the address of row r of matrix i, or of its column r if rows of the output are along m (`.trans`). Units of 16
bytes of a buffer's rows are permuted as by the tensor map's swizzle, so that the 8 rows of a matrix are in different banks. TMA
leaves out elements past the output's end.

Writes by threads and reads by TMA take different ways (proxies) to shared memory. So every lane ends its writes with a fence, and
only then the first lane starts the store.
"""

from __future__ import annotations

import re

from gensor_gym.codegen.cuda.index import origin
from gensor_gym.codegen.cuda.tensor_map import UNIT
from gensor_gym.codegen.cuda.text import SCALARS, Loop, Writer, total
from gensor_gym.codegen.cuda.wgmma.boxes.buffers import BUFFERS, GROUP, ITEM, MOST_COLUMNS, WARP_ROWS, Boxes
from gensor_gym.codegen.cuda.wgmma.plan import WARPGROUP, WgmmaPlan
from gensor_gym.codegen.cuda.wgmma.store import write_column, write_epilogue, write_guarded
from gensor_gym.graph.matrices.choices import WGMMA_ROWS

_SYNC = "__syncwarp(0xffffffffu);"


def box_constants(plan: WgmmaPlan, boxes: Boxes) -> dict[str, tuple[int, str]]:
    """Return the constants of the kernel's text for its buffers, by name: (value, meaning)."""
    return {
        "RESULTS": (plan.stages * plan.stage_bytes, "bytes before the buffers of results: all stages"),
        "RESULTS_BYTES": (boxes.shared_bytes, "buffers of all warps"),
        "BUFFER_BYTES": (boxes.buffer_bytes, f"a buffer: {WARP_ROWS} rows of {boxes.columns} columns"),
        "PARTS": (plan.tile[1] // boxes.columns, f"parts of {boxes.columns} columns"),
    }


def declare_buffers(out: Writer, boxes: Boxes) -> None:
    """Write declarations of the warp's first buffer, and of the place in a buffer where this lane's rows of matrices begin."""
    first = f"(threadIdx.x - {WARPGROUP}) / 32 * {BUFFERS} * BUFFER_BYTES"
    out.line(f"const unsigned results = tiles + RESULTS + {first};")
    if boxes.turned:
        row, unit, turn = "(lane / 16 * 8 + lane % 8)", "lane / 8 % 2", "lane % 8 / 4"
        pitch = WARP_ROWS * ITEM
    else:
        row, unit, pitch = "lane % 16", "lane / 16", boxes.columns * ITEM
        turn = f"lane % 8{f' / {MOST_COLUMNS // boxes.columns}' if boxes.columns < MOST_COLUMNS else ''}"
    out.line(f"const unsigned own_row = {row} * {pitch} + ({unit} ^ {turn}) * {UNIT};")


def write_boxes(out: Writer, plan: WgmmaPlan, boxes: Boxes) -> None:
    """Write the epilogue of a thread's accumulators, and the stores of the warp's tile through its buffers."""
    m = plan.op.axes[plan.roles.m]
    indices = [origin(plan, a) for a in range(len(plan.op.axes))]
    row = total([(1, indices[plan.roles.m]), (1, f"first_{m.name}")])
    parts = plan.tile[1] // boxes.columns
    if plan.persistent:
        out.line("if (lane == 0) wait_for_stores<0>();  // the tile before has left the buffers")
        out.line(_SYNC)
    with out.nest([Loop("rows", "ROW_BLOCKS"), Loop("part", "PARTS")]):
        out.line(f"const unsigned buffer = results + (rows * PARTS + part) % {BUFFERS} * BUFFER_BYTES;")
        if plan.tile[0] // WGMMA_ROWS * parts > BUFFERS:
            with out.block(f"if (rows * PARTS + part >= {BUFFERS})"):
                out.line(f"if (lane == 0) wait_for_stores<{BUFFERS - 1}>();")
                out.line(_SYNC)
        with out.nest([Loop("sixteen", str(boxes.columns // GROUP))]):
            _write_matrices(out, plan, boxes, indices, row)
        out.line("fence_async();")
        out.line(_SYNC)
        limit = plan.register[plan.roles.m]
        with out.block("if (lane == 0)" if limit >= WGMMA_ROWS else f"if (lane == 0 && first_{m.name} < {limit})"):
            indices[plan.roles.m] = f"{row} + rows * {WGMMA_ROWS}"
            _write_stores(out, plan, boxes, indices)
            out.line("commit_stores();")


def write_last_wait(out: Writer) -> None:
    """Write the wait for the reads of the last stores, because a block's shared memory ends with the block."""
    out.line("if (lane == 0) wait_for_stores<0>();")


def _write_matrices(out: Writer, plan: WgmmaPlan, boxes: Boxes, indices: list[str], row: str) -> None:
    """Write the epilogue of 16 columns, and the store of their four matrices to the buffer.

    Accumulators 4 i and 4 i + 1 of a thread are adjacent in a row r of the 8 columns i, 4 i + 2 and 4 i + 3 in row r + 8.
    """
    kind, dtype = SCALARS[plan.op.accumulator].name, plan.op.output.dtype
    out.line("unsigned words[4];")
    with out.nest([Loop("word", "4")]):
        out.line(f"const int group = (part * {boxes.columns // GROUP} + sixteen) * 2 + word / 2;")
        sums = "acc[rows][group * 4 + word % 2 * 2"
        out.line(f"{kind} run[2] = {{{sums}], {sums} + 1]}};")
        if plan.op.epilogue:
            out.lines += _used(_epilogue(plan, indices, row, out.depth))
        out.line(f"words[word] = pack_{dtype}(run[0], run[1]);")
    if boxes.turned:
        out.line(f"store_transposed_x4(buffer + own_row + sixteen * {GROUP * WARP_ROWS * ITEM}, words);")
    else:
        out.line(f"store_matrices_x4(buffer + (own_row ^ sixteen * {GROUP * ITEM}), words);")


def _epilogue(plan: WgmmaPlan, indices: list[str], row: str, depth: int) -> list[str]:
    """Return the lines of the epilogue of two adjacent sums, with the declarations of their output indices before."""
    out, m, at = Writer(depth=depth), plan.op.axes[plan.roles.m], [*indices]
    out.line(f"const int out_{m.name} = {row} + rows * {WGMMA_ROWS} + word % 2 * 8;")
    at[plan.roles.m] = f"out_{m.name}"
    inside = [f"out_{m.name} < {m.extent}"] if plan.overhang[plan.roles.m] else []
    write_guarded(out, plan, at, inside + write_column(out, plan, 8, at), write_epilogue)
    return out.lines


def _used(lines: list[str]) -> list[str]:
    """Return the lines without declarations of indices that no later line uses. NVRTC would warn of such declarations."""
    kept = list[str]()
    for line in reversed(lines):
        declared = re.match(r"\s*const int (\w+) =", line)
        if declared is None or any(re.search(rf"\b{declared[1]}\b", other) for other in kept):
            kept.append(line)
    return kept[::-1]


def _write_stores(out: Writer, plan: WgmmaPlan, boxes: Boxes, indices: list[str]) -> None:
    """Write the stores of a buffer's boxes by its first lane, whose own row and column are the first ones of the warp."""
    number, rank = boxes.columns // boxes.box_columns, len(boxes.axes)
    with out.nest([Loop("box", str(number))] if number > 1 else []):
        out.line(f"const int group = {f'part * {number} + box' if number > 1 else 'part'};")
        at = [*indices]
        write_column(out, plan, boxes.box_columns, at)
        place = ", ".join(at[a] for a in reversed(boxes.axes))
        first = f"buffer + box * {boxes.box_columns * WARP_ROWS * ITEM}" if number > 1 else "buffer"
        out.line(f"store_box_{rank}d({boxes.name}_map, {first}, {place});")
