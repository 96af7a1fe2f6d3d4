"""From a schedule to a kernel: generation for either kind of hardware, and compilation."""

from __future__ import annotations

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import lower
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


def generate(op: Operator | str, schedule: Schedule, hw: str | Hardware, prepacked: bool = False) -> Kernel:
    """The source of a schedule on `hw` (a name or a Hardware): C for a CPU, CUDA for a GPU. Compiles nothing.

    `prepacked` asks for a kernel that reads weights packed by an earlier call (`Kernel.prepares`). They stay packed as they
    were then: whoever changes them calls that entry again. ValueError where the schedule packs no weights, or on a GPU.
    """
    from gensor_gym import hardware, operators

    machine = hardware.get(hw)
    program = lower(operators.resolve_one(op), schedule, machine)
    if machine.kind == "cpu":
        from gensor_gym.codegen.c.codegen import generate_c

        return generate_c(program, prepacked)
    if prepacked:
        raise ValueError(f"prepacked kernels are generated for CPUs, got {machine.name!r}")
    from gensor_gym.codegen.cuda.codegen import generate_cuda

    return generate_cuda(program)


def build(op: Operator | str, schedule: Schedule, hw: str | Hardware) -> Kernel:
    """The kernel of a schedule. C is compiled now (CompileError if that fails); CUDA at the kernel's first call.

    ValueError where no code can be written for it, or it is not legal in any space.
    """
    from gensor_gym import hardware, operators
    from gensor_gym.construction import ConstructionGraph

    if not isinstance(schedule, Schedule):
        raise ValueError(f"schedule {schedule!r}: expected a Schedule; Schedule.parse reads its text")
    op = operators.resolve_one(op)
    machine = hardware.get(hw)
    if not ConstructionGraph(op, machine, "extended").is_legal(schedule):
        raise ValueError(f"not a legal schedule of {op} on {machine.name}: row {schedule.row.tolist()}")
    kernel = generate(op, schedule, machine)
    if kernel.language == "c":
        from gensor_gym.codegen.runtime.compile import compile_c

        compile_c(kernel)
    return kernel
