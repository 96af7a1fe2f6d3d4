"""Generate CUDA for a schedule of a chain, in the style of FlashAttention-2 (Dao, arXiv 2307.08691).

A block owns some rows of one element of the batch and loops over tiles of keys. Its warps have rows of their own, so the scores
and the sums of the output stay in registers and warps meet only where the tile in shared memory changes.
"""

from __future__ import annotations

from gensor_gym.chains.chain import Matrix
from gensor_gym.codegen.c.text import linear
from gensor_gym.codegen.chains.cuda.between import Between
from gensor_gym.codegen.chains.cuda.copies import write_copy, write_rights
from gensor_gym.codegen.chains.cuda.plan import Plan
from gensor_gym.codegen.chains.cuda.products import TILE_M, write_lanes, write_left, write_scores, write_second
from gensor_gym.codegen.chains.program import ChainProgram
from gensor_gym.codegen.cuda.dialect import CUDA
from gensor_gym.codegen.cuda.ptx import FUNCTIONS, device_functions
from gensor_gym.codegen.cuda.text import SCALARS, Loop, Writer, used_constants
from gensor_gym.codegen.cuda.wgmma.text import FUNCTIONS as PAIRS
from gensor_gym.codegen.gir.cuda.inputs import TYPES
from gensor_gym.codegen.gir.cuda.prelude import functions_for
from gensor_gym.codegen.gir.rows import c_name
from gensor_gym.codegen.kernel import Kernel, Launch

_ENTRY = "gg_chain"


def generate_chain_cuda(program: ChainProgram) -> Kernel:
    """The CUDA kernel of a chain's schedule; ValueError if the chain has no kernel on tensor cores."""
    plan = Plan(program)
    graph, body = plan.chain.graph, _body(plan)
    arguments = [f"const {TYPES[value.dtype]} *__restrict__ {c_name(value.name)}" for value in graph.inputs]
    arguments += [f"{TYPES[graph.outputs[0].dtype]} *__restrict__ {c_name(graph.returns[0])}", "float *__restrict__ workspace"]
    declared = "".join(f"  {line}\n" for line in used_constants(body, plan.constants))
    head = f'extern "C" __global__ void __launch_bounds__({plan.threads}, {plan.resident})\n{_ENTRY}({", ".join(arguments)})'
    text = f"{CUDA.shared_memory}\n\n{head} {{\n{declared}{body}}}\n"
    pairs = {name: PAIRS[name] for name in ("pack_float16", "pack_bfloat16")}
    functions = device_functions(text, {**pairs, **FUNCTIONS}) + functions_for(text)
    source = f"// {graph} on {program.hardware.name}: {program.schedule}\n\n{functions}{text}"
    launch = Launch(_ENTRY, (plan.chain.elements * plan.parts, 1, 1), (plan.threads, 1, 1), plan.shared_bytes)
    return Kernel(graph, "cuda", program.hardware.arch, source, (launch,), 0)


def _body(plan: Plan) -> str:
    """CUDA text of the kernel's body."""
    out, between = Writer(depth=1), Between(plan)
    _write_positions(out, plan)
    between.begin(out)
    write_lanes(out, plan)
    out.line("float sums[M_TILES][OUT_TILES][4] = {};")
    write_copy(out, plan, plan.left, "0", "first_row", "0")
    out.line("commit_copies();")
    for place in range(plan.stream.passes):
        _write_pass(out, plan, between, place)
    _write_output(out, plan, between)
    return out.text


def _write_positions(out: Writer, plan: Plan) -> None:
    """Declare the indices of the block, the warp and the lane, and pointers to the element's matrices."""
    chain = plan.chain
    out.line("const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;")
    out.line("const int element = blockIdx.x / PARTS, first_row = blockIdx.x % PARTS * BLOCK_ROWS;")
    below, digits = 1, list[str]()
    for axis in reversed(range(len(chain.batch))):
        digit = "element" if below == 1 else f"element / {below}"
        digits.insert(0, f"static_cast<long long>({f'{digit} % {chain.batch[axis]}' if axis else digit})")
        below *= chain.batch[axis]
    named = (("left", chain.left), ("first", chain.first), ("second", chain.second))
    for name, matrix in named:
        out.line(f"const {SCALARS[chain.dtype].name} *const {name} = {_start(matrix, c_name(matrix.tensor), digits)};")
    out.line(f"{SCALARS[chain.dtype].name} *const made = {_start(chain.out, c_name(chain.graph.returns[0]), digits)};")


def _start(matrix: Matrix, name: str, digits: list[str]) -> str:
    """CUDA pointer to the first element of a matrix in the tensor `name`; `digits` are the batch indices."""
    place = linear(zip(matrix.batch, digits, strict=True), matrix.offset)
    return name if place == "0" else f"{name} + {place}"


def _write_pass(out: Writer, plan: Plan, between: Between, place: int) -> None:
    """Write a pass along the tiles of keys, whose copies run `stages - 1` tiles ahead."""
    ahead, last = plan.ahead, place == plan.stream.passes - 1
    if place:
        out.line("__syncthreads();  // every warp is done with the tiles of the pass before")
    for stage in range(ahead):
        if stage < plan.tiles:
            write_rights(out, plan, str(stage), str(stage * plan.buffer), last)
        out.line("commit_copies();")
    if not place and plan.value("hold"):
        _write_held(out, plan)
    between.begin_pass(out, place)
    if ahead:
        out.line(f"{'int ' if not place else ''}filled = 0{',' if not place else ';'} empty = {ahead} * BUFFER;")
    out.line("#pragma unroll 1")
    with out.block("for (int tile = 0; tile < TILES; ++tile)"):
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
    """Write the loads of the left operand's fragments, which stay in registers."""
    out.line(f"wait_for_copies<{plan.ahead}>();")
    out.line("__syncthreads();  // the rows of the left operand are complete")
    out.line("unsigned left_rows[M_TILES][POINTS][4];")
    with out.nest([TILE_M, Loop("point", "POINTS")]):
        write_left(out, plan, "left_rows[tile_m][point]", "point")


def _write_arrival(out: Writer, plan: Plan, last: bool) -> None:
    """Write the wait for the tile of keys in `buffer`, and the copies of the tile that is `stages - 1` ahead."""
    ahead = plan.ahead
    if not ahead:
        write_rights(out, plan, "tile", "0", last)
        out.line("commit_copies();")
    out.line(f"wait_for_copies<{max(0, ahead - 1)}>();")
    out.line("__syncthreads();  // this tile is complete, every warp is done with the one before")
    if ahead:
        with out.block(f"if (tile + {ahead} < TILES)"):
            write_rights(out, plan, f"tile + {ahead}", "empty", last)
        out.line("commit_copies();")
    out.line(f"const int buffer = {'filled' if ahead else '0'};")


def _write_output(out: Writer, plan: Plan, between: Between) -> None:
    """Write the stores of a lane's sums, two at a time if they are adjacent in memory."""
    chain, factor = plan.chain, between.factor()
    columns = chain.products[1].columns
    pairs = columns % 2 == 0 and all(step % 2 == 0 for step in (chain.out.row, chain.out.offset, *chain.out.batch))
    with out.nest([TILE_M, Loop("half", "2")]):
        out.line("const int row = first_row + (warp * M_TILES + tile_m) * 16 + half * 8 + lane / 4;")
        out.line(f"const float factor = {factor};" if factor else "const float factor = 1.0f;")
        with out.guarded(["row < ROWS"] if chain.rows % plan.rows else []), out.nest([Loop("tile_out", "OUT_TILES")]):
            out.line("const int column = tile_out * 8 + lane % 4 * 2;")
            out.line("const float *const two = sums[tile_m][tile_out] + 2 * half;")
            at = f"made + static_cast<long long>(row) * {chain.out.row} + column"
            full = columns == plan.room.out
            if pairs:
                with out.guarded([] if full else [f"column < {columns}"]):
                    pair = f"pack_{chain.dtype}(two[0] * factor, two[1] * factor)"
                    out.line(f"*reinterpret_cast<unsigned *>({at}) = {pair};")
            else:
                for i in (0, 1):
                    with out.guarded([f"column + {i} < {columns}"]):
                        out.line(f"({at})[{i}] = to_{chain.dtype}(two[{i}] * factor);")
