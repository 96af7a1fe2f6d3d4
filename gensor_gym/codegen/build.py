"""From a schedule to a kernel: `generate` writes the source, `build` returns a kernel that can be called."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any

from gensor_gym.codegen import targets
from gensor_gym.codegen.families import AnySchedule, family_of
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import lower
from gensor_gym.codegen.runtime.arrays import Bound, LoadedKernel
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.joins import check_pitches
from gensor_gym.dataflow.resolve import resolve_computation
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

VARIANTS = ("pingpong", "producer", "tma_store", "pingpong_tma_store")
"""Names of a schedule's other kernels: consumers of wgmma that take turns, with more tiles than run at a time
(`cuda/wgmma/pingpong.py`); a float32 product on CUDA cores whose tiles a warp copies through TMA (`cuda/producer/`); a 16-bit
output of wgmma that TMA stores (`cuda/wgmma/boxes/`), without and with turns."""


class BuiltKernel(Kernel):
    """A generated kernel that can be called with arrays; it is compiled and loaded at the first call at the latest."""

    @cached_property
    def loaded(self) -> LoadedKernel:
        """The kernel, loaded into this process at first use.

        If this machine cannot run it, the error names the missing part: `CudaUnavailableError` without a GPU, for example.
        """
        return targets.get(self.language).load(self)

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Compute the operator's output from its inputs: arrays of NumPy or of any library with DLPack (torch, CuPy, JAX).

        Return a new array of the first input's library (a tuple for several outputs), or `out`, filled with the result.
        ValueError for inputs of wrong number, shape, dtype or device, and for an `out` that overlaps an input.
        """
        return self.loaded(*inputs) if out is None else self.loaded(*inputs, out=out)

    def bind(self, *arrays: Any) -> Bound:
        """Return a function without arguments that runs the kernel on `arrays`: the inputs and, optionally, the output.

        `bind` checks the arrays, and the returned function checks nothing. ValueError as in `__call__`, and if an input would
        have to be copied.
        """
        return self.loaded.bind(*arrays)

    def as_torch(self) -> Callable[..., Any]:
        """Return the kernel as a custom operator of torch, which torch.compile and torch.export keep (`runtime.torch_operator`).

        RuntimeError if the first call of this method happens within compiled code.
        """
        from gensor_gym.codegen.runtime.torch_operator import refuse_compiling, torch_operator

        if getattr(self, "_in_torch", None) is None:
            refuse_compiling()
            self.__dict__["_in_torch"] = torch_operator(self.operator, self.digest, self.loaded)
        made: Callable[..., Any] = self.__dict__["_in_torch"]
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle: all fields except the loaded kernel, which another process loads itself."""
        return {name: value for name, value in self.__dict__.items() if name not in ("loaded", "_in_torch")}


def generate(op: Operator | Dataflow | str, schedule: AnySchedule, hw: str | Hardware) -> Kernel:
    """Write the source of an operator's kernel for a schedule on the machine `hw`, and compile nothing.

    `hw` is a name or a Hardware; it determines the language.

    A fused operator (`dataflow.Dataflow`, or the text of one) takes a `gir.GirSchedule`, a chain of two products a
    `chains.ChainSchedule` (on a GPU a `GpuChainSchedule`), and a product followed by a row nest the `Schedule` of the product.

    On a CPU, if the operator is frozen and the schedule packs its weights, the kernel reads a packed copy of the weights. Its
    entry `Kernel.prepares` makes that copy; call it again after changing the weights.
    """
    from gensor_gym import hardware

    machine, op = hardware.get(hw), resolve_computation(op)
    check_kind(op, schedule, machine)
    check_pitches(op, machine)
    return family_of(op).generate(op, schedule, machine)


def generate_variant(op: Operator | Dataflow, schedule: AnySchedule, hw: Hardware, variant: str) -> Kernel | None:
    """Write the source of another kernel of a schedule, one of `VARIANTS`; compile nothing.

    None if the schedule has no such kernel. No GPU has run one, so `generate` writes none. ValueError for any other variant.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}: one of {', '.join(VARIANTS)}")
    if not isinstance(op, Operator) or not isinstance(schedule, Schedule):
        return None
    return targets.target_of(hw).generate_variant(lower(op, schedule, hw), variant)


def check_kind(op: Operator | Dataflow, schedule: object, hw: Hardware) -> None:
    """Check that `schedule` has the class of the operator's schedules on a machine; ValueError if not."""
    wanted = family_of(op).schedules[hw.kind]
    if not isinstance(schedule, wanted):
        raise ValueError(f"schedule {schedule!r}: expected a {wanted.__name__} for {op}; {wanted.__name__}.parse reads its text")


def build(op: Operator | Dataflow | str, schedule: AnySchedule, hw: str | Hardware) -> BuiltKernel:
    """Build a callable kernel of an operator for a schedule on the machine `hw`.

    C is compiled now (CompileError if that fails), GPU code at the kernel's first call. ValueError if the schedule is not legal
    in any space, or if no code can be generated for it.
    """
    from gensor_gym import hardware

    op, machine = resolve_computation(op), hardware.get(hw)
    check_kind(op, schedule, machine)
    graph: Any = family_of(op).graph(op, machine, None)
    if not graph.is_legal_once(schedule):
        raise ValueError(f"not a legal schedule of {op} on {machine.name}: row {schedule.row.tolist()}")
    return built(generate(op, schedule, machine))


def built(kernel: Kernel) -> BuiltKernel:
    """Make a generated kernel callable. C is compiled now, GPU code at the first call."""
    targets.get(kernel.language).prepare(kernel)
    return BuiltKernel(**{field.name: getattr(kernel, field.name) for field in dataclasses.fields(kernel)})
