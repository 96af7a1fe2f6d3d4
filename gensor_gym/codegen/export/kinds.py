"""Exported C functions that take sizes as arguments: operators that differ only in sizes (a kind) share one function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import get_args, get_origin, get_type_hints

from gensor_gym.codegen.export.names import Exports
from gensor_gym.operators.registry import FACTORIES
from gensor_gym.operators.types import Operator


@dataclass(frozen=True)
class Kind:
    """Kernels whose operators differ only in sizes, and the C function that selects one of them by the sizes that it gets."""

    exports: tuple[Exports, ...]

    @cached_property
    def name(self) -> str:
        """Name of the C function, such as `gemm_int8_bias_relu` or `elementwise_exp_2d`."""
        return kind_name(self.exports[0].kernel.loop_nest)

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """Identifiers of the size parameters, in the order of the operator's arguments, distinct from the tensors' names."""
        taken = {name for name, _ in self.exports[0].tensors}
        return tuple(f"{name}_size" if name in taken else name for name, _ in sizes_of(self.exports[0].kernel.loop_nest))

    @property
    def parameters(self) -> str:
        """C text of the function's parameters."""
        return ", ".join([self.exports[0].parameters, *(f"int64_t {name}" for name in self.sizes)])

    def call(self, one: Exports) -> str:
        """Return the C text of a call that selects the kernel `one` by its sizes; variables have the tensors' names."""
        return f"{self.name}({', '.join([one.arguments, *(str(n) for _, n in sizes_of(one.kernel.loop_nest))])})"

    def missed(self) -> str:
        """Return the C text of a call with null arrays and sizes of 0, which no kernel has."""
        nowhere = ", ".join(["0"] * (len(self.exports[0].tensors) + len(self.sizes)))
        return f"{self.name}({nowhere})"


def kinds_of(exports: Sequence[Exports]) -> list[Kind]:
    """Group kernels by kind (operators that differ only in sizes), in the given order.

    Fused operators do not belong to a kind: they are called by name only.
    """
    found: dict[str, list[Exports]] = {}
    for one in exports:
        if not isinstance(one.kernel.operator, Operator):
            continue
        found.setdefault(kind_name(one.kernel.loop_nest), []).append(one)
    return [Kind(tuple(same)) for same in found.values()]


def kind_name(op: Operator) -> str:
    """Return the name of an operator's kind, an identifier.

    It consists of the operator's name, textual arguments, number of dimensions and epilogue stages.
    """
    words = [str(value) for _, value in op.arguments if isinstance(value, str)]
    ranks = [f"{len(op.output.shape)}d"] if _variadic(op.name) else []
    stages = [stage.name for stage in op.epilogue]
    return re.sub(r"\W+", "_", "_".join([op.name, *words, *ranks, *stages])).lower()


def sizes_of(op: Operator) -> tuple[tuple[str, int], ...]:
    """Return (identifier, value) of every numeric argument of an operator, including defaults.

    A pair (height, width) gives two entries.
    """
    factory, given = FACTORIES[op.name], dict(op.arguments)
    hints, found = get_type_hints(factory), []
    for name, parameter in inspect.signature(factory).parameters.items():
        value = given.get(name, parameter.default)
        if isinstance(value, str):
            continue
        pair = tuple in {get_origin(hint) for hint in get_args(hints.get(name))}
        values = value if isinstance(value, tuple) else (value, value) if pair else (value,)
        several = pair or parameter.kind is parameter.VAR_POSITIONAL
        found += [(f"{name}_{place}" if several else name, int(number)) for place, number in enumerate(values)]
    return tuple(found)


def declared(kind: Kind) -> str:
    """Return the C declaration of a kind's function, for the header."""
    return f"""/* The kernel of these sizes below; EINVAL where there is none. */
int {kind.name}({kind.parameters});
"""


def defined(kind: Kind) -> str:
    """Return the C definition of a kind's function, which compares the sizes and returns EINVAL if no kernel has them."""
    lines = []
    for one in kind.exports:
        same = " && ".join(f"{name} == {n}" for name, (_, n) in zip(kind.sizes, sizes_of(one.kernel.loop_nest), strict=True))
        lines.append(f"    if ({same}) return {one.name}({one.arguments});")
    return "\n".join([f"API int {kind.name}({kind.parameters}) {{", *lines, "    return EINVAL;", "}", ""])


def _variadic(name: str) -> bool:
    parameters = inspect.signature(FACTORIES[name]).parameters.values()
    return any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
