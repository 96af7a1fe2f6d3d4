"""CUDA generator for a row nest's schedule.

There is one launch per kernel of the instruction graph, and a second one if blocks share rows.
"""

from __future__ import annotations

from gensor_gym.codegen.cuda.dialect import CUDA
from gensor_gym.codegen.cuda.ptx import device_functions
from gensor_gym.codegen.gir.cuda.block import BlockPrinter
from gensor_gym.codegen.gir.cuda.elements import element_of, whole_functions
from gensor_gym.codegen.gir.cuda.inputs import TYPES, half_of, stored_type, type_of
from gensor_gym.codegen.gir.cuda.places import KernelPlaces, Workspace
from gensor_gym.codegen.gir.cuda.prelude import functions_for
from gensor_gym.codegen.gir.generate import GirProgram
from gensor_gym.codegen.gir.rows import c_name
from gensor_gym.codegen.kernel import FINISH, Kernel, Launch
from gensor_gym.gir.gpu.teams import WARP
from gensor_gym.gir.nest import Access

START, STARTERS = "_start", 256
"""End of the name of the launch that sets a scatter's table to its first numbers, and threads of its blocks."""


def generate_gir_cuda(program: GirProgram) -> Kernel:
    """Generate the CUDA kernel for a schedule of a row nest (a fused operator as loops over rows and columns).

    ValueError if no code can be generated for its memory levels or its inputs.
    """
    lowered, graph = program.lowered, program.nest.graph
    if lowered.fault:
        raise ValueError(f"{graph.name}: {lowered.fault}")
    if other := [value for value in graph.inputs if value.dtype not in TYPES]:
        raise ValueError(f"{graph.name}: input {other[0].name} is {other[0].dtype}, expected one of {', '.join(TYPES)}")
    loads = (cell.made for cell in program.nest.cells if isinstance(cell.made, Access) and cell.made.chosen)
    item = element_of(program.nest).c
    others = (access for access in loads if type_of(program.nest, access) != item and not half_of(program.nest, access))
    if table := next((access.tensor for access in others), None):
        raise ValueError(f"{graph.name}: ids select rows of {table}, a table of another type: expected {item} on a GPU")
    kernels = tuple(KernelPlaces(program, number) for number in range(len(lowered.kernels)))
    workspace = Workspace(kernels)
    texts, launches = [], []
    for places in kernels:
        entry, shape = f"gg_fused{places.number}", places.shape
        printer = BlockPrinter(places, workspace)
        if (to := program.nest.scattered) is not None:
            launches.append(Launch(f"{entry}{START}", (-(-graph.outputs[0].size // STARTERS), 1, 1), (STARTERS, 1, 1), 0))
            texts.append(_kernel(program, f"{entry}{START}", STARTERS, _starts(program, to), 0))
        launches.append(Launch(entry, (places.blocks, 1, 1), (shape.threads, 1, 1), places.shared_bytes))
        texts.append(_kernel(program, entry, shape.threads, _sizes(places) + printer.body(), places.shared_bytes))
        if places.finishes:
            threads = shape.finish_threads
            nbytes = program.nest.item_bytes * len(places.reductions) * (threads // WARP) if threads > WARP else 0
            launches.append(Launch(f"{entry}{FINISH}", (program.nest.rows, 1, 1), (threads, 1, 1), nbytes))
            texts.append(_kernel(program, f"{entry}{FINISH}", threads, BlockPrinter(places, workspace).finish(), nbytes))
    text = "\n".join(texts)
    shared = f"{CUDA.shared_memory}\n\n" if any(launch.shared_bytes for launch in launches) else ""
    title = f"// {program.nest.graph} on {program.hardware.name}: {program.schedule}\n\n"
    functions = whole_functions(text) if graph.whole else device_functions(text) + functions_for(text)
    source = f"{title}{functions}{shared}{text}"
    return Kernel(program.nest.graph, "cuda", program.hardware.arch, source, tuple(launches), workspace.nbytes)


def _starts(program: GirProgram, to: Access) -> str:
    """Return the body of the launch in which each thread sets an element of a scatter's table to the first number."""
    assert to.chosen is not None and to.chosen.scatter is not None
    size, start = program.nest.graph.outputs[0].size, element_of(program.nest).number(to.chosen.scatter.start)
    index = f"  const long long at = blockIdx.x * {STARTERS}ll + threadIdx.x;\n"
    return f"{index}  if (at < {size}) {c_name(to.tensor)}[at] = {start};\n"


def _sizes(places: KernelPlaces) -> str:
    shape = places.shape
    named = {
        "LANES": (shape.lanes, "threads of a row"), "ROWS": (shape.rows, "rows of a step"),
        "THREADS": (shape.threads, "of a block"),
        "VECTOR": (shape.vector, "elements a lane takes at once"), "TILE": (shape.tile, "vectors of a lane in a step"),
        "WIDE": (shape.wide, "columns of a step"),
    }  # fmt: skip
    return "".join(f"  constexpr int {name} = {value};  // {why}\n" for name, (value, why) in named.items())


def _kernel(program: GirProgram, entry: str, threads: int, body: str, shared_bytes: int) -> str:
    graph = program.nest.graph
    inputs = [f"const {stored_type(value.dtype)} *__restrict__ {c_name(value.name)}" for value in graph.inputs]
    item = element_of(program.nest).c
    outputs = [f"{stored_type(value.dtype)} *__restrict__ {c_name(value.name)}" for value in graph.outputs]
    arguments = ", ".join([*inputs, *outputs, "float *__restrict__ workspace"])
    shared = f"  {item} *const shared = reinterpret_cast<{item} *>(shared_memory);\n" if shared_bytes else ""
    return f'extern "C" __global__ void __launch_bounds__({threads})\n{entry}({arguments}) {{\n{shared}{body}}}\n'
