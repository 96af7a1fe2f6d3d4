"""C names of exported kernels, and the C types of tensors."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache, cached_property

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.types import Tensor

C_TYPES = {
    "float32": "float", "int8": "int8_t", "int32": "int32_t", "int64": "int64_t", "bool": "uint8_t", "float16": "uint16_t",
    "bfloat16": "uint16_t", "float8_e4m3fn": "uint8_t",
}  # fmt: skip
"""Data type -> C type of an element. Floats of 8 and 16 bits are passed as their bits."""

_TAKEN = frozenset(
    "auto bool break case catch char class const continue default delete do double else enum explicit export extern false float "
    "for friend goto if inline int long mutable namespace new operator private protected public register restrict return short "
    "signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual void "
    "volatile while inputs outputs workspace NULL API ENOMEM ENOTSUP EINVAL errno once kept".split()
)
"""Names that no parameter of an exported function may have: keywords of C and C++, and names that the functions use."""


def _parameter(name: str) -> str:
    plain = re.sub(r"\W", "_", name)
    return f"{plain}_" if plain in _TAKEN else plain


def function_name(op: Computation) -> str:
    """Return the C name of an operator's function, such as `gemm_m64_n64_k64_relu`.

    `_` is appended to names of C, C++ or the C library.
    """
    plain = re.sub(r"\W+", "_", str(op).replace("=", "")).strip("_").lower()
    return f"{plain}_" if plain in _TAKEN or plain == "main" or hasattr(_library(), plain) else plain


@cache
def _library() -> ctypes.CDLL:
    """Return the C library of this process, whose functions' names exported functions must not have."""
    return ctypes.CDLL(None)


@dataclass(frozen=True)
class Exports:
    """An exported kernel with its C name and its parameters. `called`, unless empty, is its name instead of the operator's."""

    kernel: Kernel
    called: str = ""

    @cached_property
    def name(self) -> str:
        """Name of the C function."""
        return self.called or function_name(self.kernel.operator)

    @cached_property
    def tensors(self) -> tuple[tuple[str, Tensor], ...]:
        """(C identifier, tensor) of every input, then of every output."""
        op = self.kernel.operator
        return tuple((_parameter(tensor.name), tensor) for tensor in (*op.inputs, *op.outputs))

    @property
    def inputs(self) -> tuple[tuple[str, Tensor], ...]:
        """(C identifier, tensor) of every input."""
        return self.tensors[: len(self.kernel.operator.inputs)]

    @property
    def outputs(self) -> tuple[tuple[str, Tensor], ...]:
        """(C identifier, tensor) of every output."""
        return self.tensors[len(self.kernel.operator.inputs) :]

    @property
    def parameters(self) -> str:
        """C text of the function's parameters."""
        given = [f"const {C_TYPES[tensor.dtype]} *{name}" for name, tensor in self.inputs]
        return ", ".join([*given, *(f"{C_TYPES[tensor.dtype]} *{name}" for name, tensor in self.outputs)])

    @property
    def arguments(self) -> str:
        """C text of a call's arguments: variables with the parameters' names."""
        return ", ".join(name for name, _ in self.tensors)
