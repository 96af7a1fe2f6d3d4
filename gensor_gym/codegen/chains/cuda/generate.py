"""CUDA generator for chains of two products with mma.sync, in the style of FlashAttention-2 (Dao, arXiv 2307.08691).

`ring.py` has the kernels with wgmma.

A block computes some rows of one batch element in a loop over tiles of keys. Its warps have rows of their own, so the scores and
the sums of the output stay in registers, and warps synchronise only where the tile in shared memory changes.
"""

from __future__ import annotations

from collections.abc import Mapping

from gensor_gym.codegen.chains.cuda.between import Between
from gensor_gym.codegen.chains.cuda.copies import write_copy, write_rights
from gensor_gym.codegen.chains.cuda.output import write_element, write_output, write_start
from gensor_gym.codegen.chains.cuda.plan import Plan
from gensor_gym.codegen.chains.cuda.products import TILE_M, write_lanes, write_left, write_scores, write_second
from gensor_gym.codegen.chains.cuda.ring import ring_body, ring_functions
from gensor_gym.codegen.chains.cuda.ring_plan import RingPlan
from gensor_gym.codegen.chains.program import ChainProgram
from gensor_gym.codegen.cuda.dialect import CUDA
from gensor_gym.codegen.cuda.ptx import FUNCTIONS, device_functions
from gensor_gym.codegen.cuda.tensor_map import TensorMap
from gensor_gym.codegen.cuda.text import Loop, Writer, used_constants
from gensor_gym.codegen.cuda.wgmma.text import FUNCTIONS as PAIRS
from gensor_gym.codegen.gir.cuda.inputs import TYPES
from gensor_gym.codegen.gir.cuda.prelude import functions_for
from gensor_gym.codegen.gir.rows import c_name
from gensor_gym.codegen.kernel import Kernel, Launch

_ENTRY = "gg_chain"


def generate_chain_cuda(program: ChainProgram) -> Kernel:
    """Generate the CUDA kernel for a schedule of a chain of two products, such as attention.

    ValueError if the chain has no such kernel on tensor cores.
    """
    if program.schedule.value("tensor") == 2:
        ring = RingPlan(program)
        return _kernel(ring, ring_body(ring), f"{program.hardware.arch}a", ring_functions(ring), ring.maps)
    plan = Plan(program)
    return _kernel(plan, _body(plan), program.hardware.arch, {})


def _kernel(plan: Plan, body: str, arch: str, own: Mapping[str, str], maps: tuple[TensorMap, ...] = ()) -> Kernel:
    """Assemble the kernel around the text `body`.

    `own` are the kernel's device functions by name, `maps` the tensor maps of the operands.
    """
    graph, program = plan.chain.graph, plan.program
    arguments = [f"const __grid_constant__ TensorMap {name}_map" for name in ("left", "first", "second")[: len(maps)]]
    arguments += [f"const {TYPES[value.dtype]} *__restrict__ {c_name(value.name)}" for value in graph.inputs]
    arguments += [f"{TYPES[graph.outputs[0].dtype]} *__restrict__ {c_name(graph.returns[0])}", "float *__restrict__ workspace"]
    declared = "".join(f"  {line}\n" for line in used_constants(body, plan.constants))
    head = f'extern "C" __global__ void __launch_bounds__({plan.threads}, {plan.resident})\n{_ENTRY}({", ".join(arguments)})'
    text = f"{CUDA.shared_memory}\n\n{head} {{\n{declared}{body}}}\n"
    pairs = {name: PAIRS[name] for name in ("pack_float16", "pack_bfloat16")}
    functions = device_functions(text, {**own, **pairs, **FUNCTIONS}) + functions_for(text)
    source = f"// {graph} on {program.hardware.name}: {program.schedule}\n\n{functions}{text}"
    launch = Launch(_ENTRY, (plan.chain.elements * plan.parts, 1, 1), (plan.threads, 1, 1), plan.shared_bytes)
    return Kernel(graph, "cuda", arch, source, (launch,), 0, maps=maps)


def _body(plan: Plan) -> str:
    out, between = Writer(depth=1), Between(plan)
    _write_positions(out, plan)
    between.begin(out)
    write_lanes(out, plan)
    out.line("float sums[M_TILES][OUT_TILES][4] = {};")
    write_copy(out, plan, plan.left, "0", "first_row", "0")
    out.line("commit_copies();")
    for place in range(plan.stream.passes):
        _write_pass(out, plan, between, place)
    write_output(out, plan, between)
    return out.text


def _write_positions(out: Writer, plan: Plan) -> None:
    out.line("const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;")
    write_element(out, plan)
    for name, matrix in (("left", plan.chain.left), ("first", plan.chain.first), ("second", plan.chain.second)):
        write_start(out, plan, name, matrix)
    write_start(out, plan, "made", plan.chain.out)


def _write_pass(out: Writer, plan: Plan, between: Between, place: int) -> None:
    """Write pass `place` over the tiles of keys.

    The copies to shared memory run `stages - 1` tiles ahead.
    """
    ahead, last = plan.ahead, place == plan.stream.passes - 1
    if place:
        out.line("__syncthreads();  // every warp is done with the tiles of the pass before")
    for stage in range(ahead):
        needed = stage > 0 and plan.chain.diagonal is not None
        with out.guarded([f"{stage} < seen_tiles"] if needed else []):
            if stage < plan.tiles:
                write_rights(out, plan, str(stage), str(stage * plan.buffer), last)
        out.line("commit_copies();")
    if not place and plan.value("hold"):
        _write_held(out, plan)
    between.begin_pass(out, place)
    if ahead:
        out.line(f"{'int ' if not place else ''}filled = 0{',' if not place else ';'} empty = {ahead} * BUFFER;")
    out.line("#pragma unroll 1")
    with out.block(f"for (int tile = 0; tile < {plan.tiles_of_block}; ++tile)"):
        _write_arrival(out, plan, last)
        out.line("const int key = tile * KEYS;")
        write_scores(out, plan)
        between.step(out, place)
        if last:
            write_second(out, plan)
        if ahead:
            out.line("empty = filled;")
            out.line("filled = filled + BUFFER == BUFFERS ? 0 : filled + BUFFER;")
        else:
            out.line("__syncthreads();  // every warp is done with the tiles")
    between.end_pass(out, place)


def _write_held(out: Writer, plan: Plan) -> None:
    out.line(f"wait_for_copies<{plan.ahead}>();")
    out.line("__syncthreads();  // the rows of the left operand are complete")
    out.line("unsigned left_rows[M_TILES][POINTS][4];")
    with out.nest([TILE_M, Loop("point", "POINTS")]):
        write_left(out, plan, "left_rows[tile_m][point]", "point")


def _write_arrival(out: Writer, plan: Plan, last: bool) -> None:
    ahead = plan.ahead
    if not ahead:
        write_rights(out, plan, "tile", "0", last)
        out.line("commit_copies();")
    out.line(f"wait_for_copies<{max(0, ahead - 1)}>();")
    out.line("__syncthreads();  // this tile is complete, every warp is done with the one before")
    if ahead:
        with out.block(f"if (tile + {ahead} < {plan.tiles_of_block})"):
            write_rights(out, plan, f"tile + {ahead}", "empty", last)
        out.line("commit_copies();")
    out.line(f"const int buffer = {'filled' if ahead else '0'};")
