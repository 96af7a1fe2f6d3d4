"""Register a kernel or network as a custom operator of torch: one node in graphs of torch.compile and torch.export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gensor_gym.codegen.export.names import function_name
from gensor_gym.operators.computation import Computation

if TYPE_CHECKING:
    import torch

NAMESPACE = "gensor_gym"
_MADE: dict[str, Callable[..., Any]] = {}


def refuse_compiling() -> None:
    """Raise RuntimeError if the caller runs within code that torch compiles.

    torch cannot trace the registration of an operator.
    """
    import torch

    if torch.compiler.is_compiling():
        raise RuntimeError("as_torch() is called for the first time in compiled code: call it before, in __init__ of a module")


def torch_operator(
    computation: Computation, digest: str, loaded: Callable[..., Any],
    shapes: Callable[..., Sequence[Sequence[Any]]] | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Register the torch operator `torch.ops.gensor_gym.NAME_DIGEST` and return it.

    It maps input tensors, made contiguous, to new output tensors.

    The operator has no gradient: torch refuses a backward pass. It is registered once per process, under a name of the
    computation and eight digits of the digest. An exported program finds it by that name in any process that has called
    `torch_operator` for the same kernel. `shapes` returns the shapes of the outputs for input tensors, whose sizes may be torch's
    symbols; without it they are those of the computation. ValueError for a computation without inputs.
    """
    import torch

    name = f"{function_name(computation)}_{digest[:8]}"
    if name in _MADE:
        return _MADE[name]
    outputs, count = computation.outputs, len(computation.inputs)
    if count == 0:
        raise ValueError(f"{computation} has no inputs: expected at least one of an operator of torch")

    def run(*tensors: torch.Tensor) -> Any:
        return loaded(*(tensor.contiguous() for tensor in tensors))

    def fake(*tensors: torch.Tensor) -> Any:
        known = [one.shape for one in outputs] if shapes is None else shapes(*tensors)
        kinds = [getattr(torch, one.dtype) for one in outputs]
        made = tuple(tensors[0].new_empty(shape, dtype=kind) for shape, kind in zip(known, kinds, strict=True))
        return made[0] if len(outputs) == 1 else made

    gives = "Tensor" if len(outputs) == 1 else f"({', '.join('Tensor' for _ in outputs)})"
    schema = f"({', '.join(f'Tensor in{place}' for place in range(count))}) -> {gives}"
    made = torch.library.custom_op(f"{NAMESPACE}::{name}", run, mutates_args=(), schema=schema)
    made.register_fake(fake)
    _MADE[name] = made
    return made
