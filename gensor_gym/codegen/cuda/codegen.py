"""Generator of CUDA C for a program; this module writes the kernels without tensor cores.

A kernel's text has a second kernel that adds up partial results if the reduction is split over blocks.

The text needs no header. Blocks are numbered over the block tiles of the spatial axes (the innermost axis fastest, or grouped by
the knob `raster`), then over the slices of the reduction. Thread numbers in a block run fastest over the threads that share an
output, then along the innermost spatial axis.
"""

from __future__ import annotations

from gensor_gym.codegen.cuda.dialect import CUDA, Dialect
from gensor_gym.codegen.cuda.kernel import assemble, kernel_text, launch_bounds, sizes
from gensor_gym.codegen.cuda.mma.codegen import generate_mma
from gensor_gym.codegen.cuda.origins import write_block_tile, write_slice
from gensor_gym.codegen.cuda.plan import BlockPlan, make_plan
from gensor_gym.codegen.cuda.simt.compute import write_accumulators
from gensor_gym.codegen.cuda.simt.lanes import write_lanes
from gensor_gym.codegen.cuda.simt.pipeline import write_main
from gensor_gym.codegen.cuda.simt.store import write_combine, write_store
from gensor_gym.codegen.cuda.text import SCALARS, Writer
from gensor_gym.codegen.cuda.wgmma.codegen import generate_wgmma
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import Program


def generate_cuda(program: Program) -> Kernel:
    """Generate the CUDA kernel of a program, with or without tensor cores.

    Every structurally valid schedule is accepted; with tensor_core=2, its resources must also fit the hardware. ValueError names
    a data type, a knob value or a tile that is not supported.
    """
    if program.knob("tensor_core") == 1:
        return generate_mma(program)
    if program.knob("tensor_core") == 2:
        return generate_wgmma(program)
    return generate_simt(program)


def generate_simt(program: Program, dialect: Dialect = CUDA) -> Kernel:
    """Generate the kernel of a program without tensor cores, in CUDA or a similar language.

    ValueError names the unsupported part.
    """
    plan = make_plan(program, dialect)
    entry, out = f"gg_{plan.op.name}", Writer(depth=1)
    _write_body(out, plan)
    return assemble(plan, entry, kernel_text(plan, entry, out, launch_bounds(plan), sizes(plan)))


def _write_body(out: Writer, plan: BlockPlan) -> None:
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


def _write_positions(out: Writer, plan: BlockPlan) -> None:
    if plan.slices > 1:
        write_slice(out, plan)
    write_block_tile(out, plan)
    if plan.threads > 1:
        out.line("const int thread = threadIdx.x;")
    if plan.reduce_threads > 1:
        out.line("const int reduce_thread = thread % REDUCE_THREADS;")
    write_lanes(out, plan)
