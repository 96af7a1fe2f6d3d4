"""CUDA C of a program: one kernel, and a second one that adds up where the reduction is split over blocks.

The text needs no header. Elements of the grid are block tiles over the spatial axes (the innermost fastest, or grouped
by knob raster), times slices of the reduction. Threads of a block: those that share an output fastest, then the
innermost spatial axis.
"""

from __future__ import annotations

import math

from gensor_gym.codegen.cuda_async import ASYNC_FUNCTIONS
from gensor_gym.codegen.cuda_bounds import launch_bounds
from gensor_gym.codegen.cuda_compute import write_accumulators
from gensor_gym.codegen.cuda_lanes import write_lanes
from gensor_gym.codegen.cuda_pipeline import write_main
from gensor_gym.codegen.cuda_plan import Plan, make_plan
from gensor_gym.codegen.cuda_store import FINISH_THREADS, write_combine, write_finish, write_store
from gensor_gym.codegen.cuda_text import SCALARS, Writer, remainder, total, used_constants
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.codegen.program import Program
from gensor_gym.operators.types import ITEM_BYTES


def generate_cuda(program: Program) -> Kernel:
    """The CUDA kernel of a program.

    Takes float32 and int8 operators and every structurally valid schedule, whether or not its resources fit the
    hardware. ValueError names a data type, a knob value or a tile that cannot be generated.
    """
    plan = make_plan(program)
    op, entry = plan.op, f"gg_{plan.op.name}"
    source = f"// {op}\n\n" + _main_kernel(plan, entry)
    launches = [Launch(entry, (plan.tiles * plan.slices, 1, 1), (plan.threads, 1, 1), plan.shared_bytes)]
    workspace = 0
    if plan.slices > 1:
        source += "\n" + _finish_kernel(plan, f"{entry}_finish")
        launches.append(Launch(f"{entry}_finish", (-(-op.output.size // FINISH_THREADS), 1, 1), (FINISH_THREADS, 1, 1)))
        workspace = plan.slices * op.output.size * ITEM_BYTES[op.accumulator]
    return Kernel(op, "cuda", program.hardware.arch, source, tuple(launches), workspace)


def _signature(plan: Plan, entry: str, bounds: str) -> str:
    """Head of a kernel: threads of a block (and blocks at once), all inputs, the output, the workspace."""
    op = plan.op
    inputs = [f"const {SCALARS[t.dtype].name} *__restrict__ {t.name}" for t in op.inputs]
    output = f"{SCALARS[op.output.dtype].name} *__restrict__ {op.output.name}"
    arguments = ", ".join([*inputs, output, "float *__restrict__ workspace"])
    return f'extern "C" __global__ void __launch_bounds__({bounds})\n{entry}({arguments})'


def _main_kernel(plan: Plan, entry: str) -> str:
    """Shared memory, constants and the kernel."""
    out = Writer(depth=1)
    _write_positions(out, plan)
    for read, tile in zip(plan.op.reads, plan.shared, strict=True):
        if tile is not None:
            kind = SCALARS[read.tensor.dtype].name
            at = f"shared_memory + {tile.offset}" if tile.offset else "shared_memory"
            out.line(f"{kind} *{read.tensor.name}_tile = reinterpret_cast<{kind} *>({at});")
    out.line()
    write_accumulators(out, plan)
    out.line()
    write_main(out, plan)
    out.line()
    write_combine(out, plan)
    write_store(out, plan)
    shared = "extern __shared__ __align__(16) unsigned char shared_memory[];\n\n" if plan.shared_bytes else ""
    constants = "".join(f"  {line}\n" for line in used_constants(out.text, _constants(plan)))
    if any(tile is not None and tile.asynchronous for tile in plan.shared):
        shared = ASYNC_FUNCTIONS + shared
    head = _signature(plan, entry, launch_bounds(plan))
    return f"{shared}{head} {{\n{constants}{out.text}}}\n"


def _finish_kernel(plan: Plan, entry: str) -> str:
    """The kernel that adds the slices up."""
    out = Writer(depth=1)
    write_finish(out, plan)
    constants = "".join(f"  {line}\n" for line in used_constants(out.text, _constants(plan)))
    return f"{_signature(plan, entry, str(FINISH_THREADS))} {{\n{constants}{out.text}}}\n"


def _constants(plan: Plan) -> dict[str, tuple[int, str]]:
    """Named sizes, of which a kernel declares those it uses."""
    table = {
        "THREADS": (plan.threads, "threads of a block"),
        "REDUCE_THREADS": (plan.reduce_threads, "threads that share an output"),
        "SLICES": (plan.slices, "parts of the reduction over blocks"),
        "STEPS": (plan.steps, "steps of the reduction"),
        "TILES": (plan.tiles, "block tiles of the output"),
    }
    for a, axis in enumerate(plan.op.axes):
        name = axis.name.upper()
        if axis.kind == "spatial":
            table[f"BLOCK_{name}"] = (plan.block[a], f"block tile along {axis.name}")
            table[f"REG_{name}"] = (plan.register[a], f"register tile along {axis.name}")
            table[f"INNER_{name}"] = (plan.inner[a], f"neighbours of the register tile along {axis.name}")
        else:
            table[f"STEP_{name}"] = (plan.block[a], f"step of the reduction along {axis.name}")
            table[f"CHUNK_{name}"] = (plan.register[a], f"consecutive points along {axis.name}")
    return table


def _write_positions(out: Writer, plan: Plan) -> None:
    """Where this block and this thread stand: block_<axis>, first_<axis>, slice."""
    if plan.slices > 1:
        _write_slice(out, plan)
    _write_block_tile(out, plan)
    if plan.threads > 1 or any(tile.loads > 1 for tile in plan.shared if tile):
        out.line("const int thread = threadIdx.x;")
    if plan.reduce_threads > 1:
        out.line("const int reduce_thread = thread % REDUCE_THREADS;")
    write_lanes(out, plan)


def _write_slice(out: Writer, plan: Plan) -> None:
    """The range of steps of this block's slice; the last slices may be empty."""
    each = -(-plan.steps // plan.slices)
    slice_index = "blockIdx.x / TILES" if plan.tiles > 1 else "blockIdx.x"
    kind = SCALARS[plan.op.accumulator].name
    out.line(f"const int slice = {slice_index};")
    out.line(f"const int first_step = slice * {each};")
    bounded = f"first_step + {each}"
    if each * plan.slices > plan.steps:
        bounded = f"{bounded} < STEPS ? {bounded} : STEPS"
    out.line(f"const int last_step = {bounded};")
    out.line(f"{kind} *partial = reinterpret_cast<{kind} *>(workspace) + slice * {plan.op.output.size};")


def _write_block_tile(out: Writer, plan: Plan) -> None:
    """First index of the block tile along every axis that has several tiles."""
    live = [a for a in plan.op.spatial if plan.program.grid[a] > 1]
    if not live:
        return
    out.line("const int tile = blockIdx.x % TILES;" if plan.slices > 1 else "const int tile = blockIdx.x;")
    rows = plan.program.grid[live[-2]] if len(live) > 1 else 1
    group = min(plan.program.knob("raster"), rows)
    divisor = plan.tiles
    swizzled = live[-2:] if group > 1 else []
    for a in live:
        count, name = plan.program.grid[a], plan.names[a]
        divisor //= count
        if a not in swizzled:
            index = remainder("tile", divisor, 0 if a == live[0] else count)
            out.line(f"const int block_{name} = {total([(1, index)])} * BLOCK_{name.upper()};")
    if swizzled:
        _write_raster(out, plan, swizzled, group, outer=len(live) > 2)


def _write_raster(out: Writer, plan: Plan, axes: list[int], group: int, outer: bool) -> None:
    """Tiles of the last two axes in groups of rows, column by column within a group; the last group may be shorter."""
    (row, column), rest = axes, plan.program.grid[axes[0]] % group
    rows, columns = plan.program.grid[row], plan.program.grid[column]
    place = f"tile % {math.prod((rows, columns))}" if outer else "tile"
    out.line(f"const int place = {place};")
    out.line(f"const int row_group = place / {group * columns} * {group};  // groups of {group} rows of tiles")
    height = str(group)
    if rest:
        out.line(f"const int group_rows = {rows} - row_group < {group} ? {rows} - row_group : {group};")
        height = "group_rows"
    within = f"place % {group * columns}"
    row_name, column_name = plan.names[row], plan.names[column]
    out.line(f"const int block_{row_name} = (row_group + {within} % {height}) * BLOCK_{row_name.upper()};")
    out.line(f"const int block_{column_name} = {within} / {height} * BLOCK_{column_name.upper()};")
