"""Names in C of what is exported, and the C types of tensors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.types import Tensor

C_TYPES = {"float32": "float", "int8": "int8_t", "int32": "int32_t", "float16": "uint16_t", "bfloat16": "uint16_t"}
"""Element of each data type; 16-bit floating numbers, which GPUs alone compute with, are their bits."""


def function_name(op: Computation) -> str:
    """The operator's text as an identifier: `gemm_m64_n64_k64_relu`."""
    return re.sub(r"\W+", "_", str(op).replace("=", "")).strip("_").lower()


@dataclass(frozen=True)
class Exports:
    """One kernel under the name that C calls it by."""

    kernel: Kernel

    @cached_property
    def name(self) -> str:
        """The function."""
        return function_name(self.kernel.operator)

    @cached_property
    def tensors(self) -> tuple[tuple[str, Tensor], ...]:
        """(identifier, tensor) of every input, then of every output."""
        op = self.kernel.operator
        return tuple((re.sub(r"\W", "_", tensor.name), tensor) for tensor in (*op.inputs, *op.outputs))

    @property
    def inputs(self) -> tuple[tuple[str, Tensor], ...]:
        """Those that are read."""
        return self.tensors[: len(self.kernel.operator.inputs)]

    @property
    def outputs(self) -> tuple[tuple[str, Tensor], ...]:
        """Those that are written."""
        return self.tensors[len(self.kernel.operator.inputs) :]

    @property
    def parameters(self) -> str:
        """Parameters of the function, in C."""
        given = [f"const {C_TYPES[tensor.dtype]} *{name}" for name, tensor in self.inputs]
        return ", ".join([*given, *(f"{C_TYPES[tensor.dtype]} *{name}" for name, tensor in self.outputs)])

    @property
    def arguments(self) -> str:
        """The same as arguments of a call."""
        return ", ".join(name for name, _ in self.tensors)
