"""Reading of arrays of NumPy, and of any library with DLPack (torch, JAX and others), as NumPy arrays in host memory.

An array that is dense, row-major and aligned is not copied. Any other array is copied at every call, with one `CopyWarning`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from gensor_gym.operators.computation import Computation
from gensor_gym.operators.types import ARRAY_DTYPE, Tensor

HOST_DEVICES = (1, 3)
"""DLPack's device types of host memory: kDLCPU and kDLCUDAHost (the header of DLPack)."""
_DTYPES = {name: np.dtype(array) for name, array in ARRAY_DTYPE.items()}


class LoadedKernel(Protocol):
    """Protocol of a loaded kernel: a function from the operator's inputs, in order, to the output or a tuple of outputs."""

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Run the kernel. Return new outputs as arrays of the first input's library, or fill in and return the caller's `out`."""

    def bind(self, *arrays: Any) -> Bound:
        """Return a function without arguments that runs the kernel on `arrays` (inputs, then outputs if given) without checks."""


class Bound(Protocol):
    """Protocol of a kernel bound to its arrays: each call reads their current content. Use it from one thread at a time."""

    out: Any
    """The array that a call fills in and returns."""

    def __call__(self) -> Any:
        """Run the kernel and return `out`."""


class CopyWarning(RuntimeWarning):
    """An input is not dense, row-major and aligned, so it is copied at every call."""


class Signature:
    """Shapes and types of an operator's inputs and outputs, with the checks of a call's arrays against them."""

    def __init__(self, op: Computation) -> None:
        """Prepare the checks of an operator's arrays.

        The attributes `given` and `made` list (shape, dtype) of inputs and outputs; `shape`, `dtype` are the first output's. If
        rows of a tensor are apart, its array has all that is between them (`Tensor.memory`).
        """
        self.op = op
        self._inputs = [(tensor, tensor.memory, _DTYPES[tensor.dtype], f"input {tensor.name}") for tensor in op.inputs]
        self._tensors = op.inputs  # kept, because the operator makes a new tuple at every access
        self._outputs = op.outputs
        self.given, self.made = ([(one.memory, _DTYPES[one.dtype]) for one in tensors] for tensors in (op.inputs, op.outputs))
        self.shape, self.dtype = self.made[0]

    def read(self, values: Sequence[Any]) -> list[np.ndarray]:
        """Return the inputs as NumPy arrays, without a copy; ValueError for a wrong number of inputs or an array on a device."""
        self.check_number(values)
        return [self._of_host(value, tensor, name) for value, (tensor, _, _, name) in zip(values, self._inputs, strict=True)]

    def inputs(self, values: Sequence[Any], copy: bool = True) -> list[np.ndarray]:
        """Return the inputs as dense, aligned host arrays; ValueError unless number, shapes, types and device are right.

        An input that is not dense or not aligned is copied or, if `copy` is False, raises ValueError.
        """
        arrays = []
        for array, (tensor, shape, dtype, name) in zip(self.read(values), self._inputs, strict=True):
            if array.shape != shape or array.dtype != dtype:
                raise self._mismatch(array, tensor, name)
            dense = array.flags.c_contiguous and array.flags.aligned
            given = array if dense else self.copied(array, tensor, copy)
            arrays.append(given if given.dtype is dtype else given.view(dtype))  # unpickled dtypes are equal, but not identical
        return arrays

    def input(self, place: int, value: Any) -> np.ndarray:
        """Return input number `place` as a host array, checked for shape and type but not for density."""
        tensor = self._tensors[place]
        return self.checked(self._of_host(value, tensor, f"input {tensor.name}"), tensor, f"input {tensor.name}")

    def filled(self, out: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the caller's own `out`, an array or a tuple of several, as a list of host arrays.

        ValueError as for `output`, for a wrong number of arrays, and for arrays that overlap.
        """
        count = len(self._outputs)
        if count == 1:
            return [self.output(out, inputs)]
        if not self.is_several(out):
            raise ValueError(f"{self.op}: out is {_described(out)}, expected a tuple of {count} arrays")
        arrays = [self.output(value, inputs, place) for place, value in enumerate(out)]
        for place, array in enumerate(arrays):
            if any(np.may_share_memory(array, other) for other in arrays[:place]):
                raise ValueError(f"{self.op}: outputs overlap, expected memory of its own for each")
        return arrays

    def is_several(self, out: Any) -> bool:
        """Return whether `out` is a tuple or list with one element for each output."""
        return isinstance(out, tuple | list) and len(out) == len(self._outputs)

    def output(self, value: Any, inputs: Sequence[np.ndarray], place: int = 0) -> np.ndarray:
        """Return the caller's array for output number `place`, as a host array on the same memory.

        ValueError unless shape, type and device are right, and the array is writable, dense, aligned and overlaps no input.
        """
        if not (isinstance(value, np.ndarray) or hasattr(value, "__dlpack__")):  # `asarray` might return a copy
            raise ValueError(f"{self.op}: out is a {type(value).__qualname__}, expected an array of NumPy or of DLPack")
        tensor = self._outputs[place]
        array = self.checked(self._of_host(value, tensor, "out"), tensor, "out")
        if not array.flags.carray:
            why = _fault(array) if array.flags.writeable else "read-only"
            raise ValueError(f"{self.op}: out is {why}, expected a writable array, dense in row-major order and aligned")
        self.check_apart(array, inputs, np.may_share_memory)
        return array.view(self.made[place][1])

    def check_number(self, values: Sequence[Any]) -> None:
        """Check the number of inputs; ValueError if it differs from the operator's number of inputs."""
        if len(values) != len(self._inputs):
            wanted = ", ".join(f"{t.name}{list(t.memory)}" for t in self.op.inputs)
            raise ValueError(f"{self.op}: {len(values)} arrays given, expected {len(self._inputs)}: {wanted}")

    def checked(self, array: Any, tensor: Tensor, name: str) -> Any:
        """Return the array itself, on any device; ValueError unless it has the tensor's shape and type."""
        if array.shape != tensor.memory or array.dtype != _DTYPES[tensor.dtype]:
            raise self._mismatch(array, tensor, name)
        return array

    def check_apart(self, output: Any, inputs: Sequence[Any], may_share: Callable[[Any, Any], bool]) -> None:
        """Check that an output overlaps no input; ValueError if so. Arrays are dense, so comparing bounds suffices."""
        for tensor, given in zip(self._tensors, inputs, strict=False):
            if may_share(output, given):
                raise ValueError(f"{self.op}: out overlaps input {tensor.name}, expected memory of its own")

    def split(self, arrays: Sequence[Any]) -> tuple[Sequence[Any], Any]:
        """Split the arrays given to `bind` into (inputs, `out` or None): inputs come first, then outputs.

        ValueError if one output is expected and several are given.
        """
        count = len(self._inputs)
        given, own = arrays[:count], tuple(arrays[count:])
        if len(self._outputs) > 1:
            return given, own or None
        if len(own) > 1:
            raise ValueError(f"{self.op}: {len(arrays)} arrays given, expected {count} and at most one output")
        return given, own[0] if own else None

    def _of_host(self, value: Any, tensor: Tensor, name: str) -> np.ndarray:
        """Return any array as a NumPy array, without a copy if it supports DLPack.

        ValueError if it cannot be read on the host.
        """
        if type(value) is np.ndarray:
            return value
        if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
            return np.asarray(value)
        try:
            if type(value).__module__.startswith("torch"):  # `numpy` is some microseconds faster, and shares memory or raises
                return _bits_of(value) if tensor.dtype == "bfloat16" and is_bfloat16(value) else value.numpy()
            if int(value.__dlpack_device__()[0]) in HOST_DEVICES:
                return np.from_dlpack(value)
            error: Exception | str = f"it lies on device {getattr(value, 'device', value.__dlpack_device__())}"
        except (BufferError, RuntimeError, TypeError) as refused:  # gradients, a type that NumPy lacks, another device
            error = refused
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise ValueError(f"{self.op}: {name}, a {kind}, cannot be read where it lies in the host's memory: {error}")

    def copied(self, array: Any, tensor: Tensor, copy: bool) -> Any:
        """Return a dense, aligned copy of the array, with a `CopyWarning`; ValueError if `copy` is False."""
        text = f"{self.op}: input {tensor.name} is {_fault(array)}"
        if not copy:
            raise ValueError(f"{text}, and a bound call copies nothing: expected it dense in row-major order and aligned")
        warnings.warn(f"{text}: {array.nbytes} bytes are copied at every call", CopyWarning, stacklevel=5)
        return array.copy(order="C")

    def _mismatch(self, array: np.ndarray, tensor: Tensor, name: str) -> ValueError:
        expected = f"{ARRAY_DTYPE[tensor.dtype]}{list(tensor.memory)}"
        return ValueError(f"{self.op}: {name} is {array.dtype}{list(array.shape)}, expected {expected}")


def _described(out: Any) -> str:
    kind = type(out).__qualname__
    return f"{kind} of {len(out)}" if isinstance(out, tuple | list) else kind


def is_bfloat16(value: Any) -> bool:
    """Return whether an array of any library is a torch tensor of bfloat16."""
    return type(value).__module__.startswith("torch") and str(value.dtype) == "torch.bfloat16"


def _bits_of(tensor: Any) -> np.ndarray:
    """Return the bits of a torch tensor of bfloat16 as uint16 on the same memory.

    RuntimeError if torch would refuse `numpy()`.
    """
    if tensor.requires_grad or tensor.is_neg():
        raise RuntimeError("it requires grad or is negated when it is read")
    bits: np.ndarray = tensor.view(sys.modules["torch"].int16).numpy()
    return bits.view(np.uint16)


def _fault(array: Any) -> str:
    return "misaligned" if array.flags.c_contiguous else "not dense in row-major order"


def in_library_of(first: Any, output: Any) -> Any:
    """Return the output, or a tuple of outputs, as arrays of the library of `first` on the same memory.

    If that library has no DLPack, the output is returned unchanged.
    """
    if isinstance(first, np.ndarray) or not hasattr(first, "__dlpack__"):
        return output
    if isinstance(output, tuple):
        return tuple(in_library_of(first, one) for one in output)
    # CuPy and JAX name their namespace, as the array API standard requires; torch does not.
    named = getattr(first, "__array_namespace__", None)
    library = named() if named else sys.modules[type(first).__module__.partition(".")[0]]
    of_host = getattr(library, "from_numpy", None) if isinstance(output, np.ndarray) else None
    make = of_host or getattr(library, "from_dlpack", None)
    if make is None:
        return output
    bits = of_host and output.dtype == np.uint16 and str(first.dtype) != "torch.uint16"
    return make(output.view(np.int16)).view(library.bfloat16) if bits else make(output)
