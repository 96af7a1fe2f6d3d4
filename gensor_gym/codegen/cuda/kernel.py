"""Text around the body of every GPU kernel: head, constants, and the second kernel of a split reduction."""

from __future__ import annotations

from collections.abc import Mapping

from gensor_gym.codegen.cuda.plan import BlockPlan
from gensor_gym.codegen.cuda.ptx import device_functions
from gensor_gym.codegen.cuda.simt.store import FINISH_THREADS, write_finish
from gensor_gym.codegen.cuda.text import SCALARS, Writer, used_constants
from gensor_gym.codegen.kernel import FINISH, Kernel, Launch
from gensor_gym.operators.traits import is_product


def kernel_text(
    plan: BlockPlan, entry: str, body: Writer, bounds: str, constants: dict[str, tuple[int, str]], cluster: int = 1
) -> str:
    """Return the C text of a kernel with the body `body`.

    Its parameters are tensor maps, all inputs, the output and the workspace.

    `bounds` are the arguments of `__launch_bounds__`. `constants` are (value, meaning) by name; those that the body uses are
    declared. `cluster` is the number of blocks in a cluster.
    """
    op = plan.op
    inputs = [f"const {SCALARS[t.dtype].name} *__restrict__ {t.name}" for t in op.inputs]
    output = f"{SCALARS[op.output.dtype].name} *__restrict__ {op.output.name}"
    maps = [f"const __grid_constant__ TensorMap {name}_map" for name in plan.mapped]
    arguments = ", ".join([*maps, *inputs, output, "float *__restrict__ workspace"])
    declared = "".join(f"  {line}\n" for line in used_constants(body.text, constants))
    dims = f"__cluster_dims__({cluster}, 1, 1) " if cluster > 1 else ""
    head = f'extern "C" __global__ void {dims}__launch_bounds__({bounds})\n{entry}({arguments})'
    return f"{head} {{\n{declared}{body.text}}}\n"


def launch_bounds(plan: BlockPlan) -> str:
    """Return the C text of the arguments of `__launch_bounds__`: threads and, for some products, blocks per multiprocessor.

    The number of blocks that run at the same time limits a thread's registers to its share. A product whose operands all come
    through shared memory gets this limit, because it needs few registers besides those that `graph.resources` counts:
    accumulators, fragments and copies. Other kernels also have loads in flight, whose registers would spill under the limit.
    """
    held = all(plan.staged) and is_product(plan.op)
    return plan.dialect.launch_bounds(plan.threads, plan.warp, plan.resident if held else None)


def sizes(plan: BlockPlan) -> dict[str, tuple[int, str]]:
    """Return the constants that a kernel's text may use, by name: (value, meaning)."""
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


def assemble(
    plan: BlockPlan, entry: str, main: str, functions: Mapping[str, str] | None = None, before: tuple[Launch, ...] = ()
) -> Kernel:
    """Assemble the kernel of a plan: source, launches and workspace.

    `main` is the text of the main kernel.

    `functions` are device functions that `main` may call in addition to the dialect's. `before` are launches of other kernels
    whose text `main` includes.
    """
    op = plan.op
    launches = [*before, Launch(entry, (plan.blocks, 1, 1), (plan.threads, 1, 1), plan.shared_bytes, plan.cluster)]
    if plan.shared_bytes:
        main = f"{plan.dialect.shared_memory}\n\n{main}"
    if plan.slices > 1:
        finish = Writer(depth=1)
        write_finish(finish, plan)
        main += "\n" + kernel_text(plan, f"{entry}{FINISH}", finish, str(FINISH_THREADS), sizes(plan))
        launches.append(Launch(f"{entry}{FINISH}", (-(-op.output.size // FINISH_THREADS), 1, 1), (FINISH_THREADS, 1, 1)))
    known = device_functions(main, {**(functions or {}), **plan.dialect.functions})
    source = f"// {op}\n\n{plan.dialect.head}{known}{main}"
    return Kernel(
        op, plan.dialect.language, plan.arch, source, tuple(launches), plan.workspace_bytes, cleared_bytes=plan.cleared_bytes,
        maps=plan.maps,
    )  # fmt: skip
