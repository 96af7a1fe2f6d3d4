"""Prepare the arrays of a CUDA kernel's call: device arrays are read in place, host arrays are copied to the device."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import numpy as np

from gensor_gym.codegen.runtime.arrays import Signature, in_library_of
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.types import ARRAY_DTYPE, Tensor

DEVICES = (2, 13)
"""DLPack's device types of CUDA memory: kDLCUDA and kDLCUDAManaged (the header of DLPack)."""
ALIGNMENT = 16
"""Alignment of every array in bytes: the widest load, and the requirement of tensor maps."""


def lies_on_device(value: Any) -> bool:
    """Return whether an array is in a GPU's memory, by its DLPack device or else by having `__cuda_array_interface__`."""
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) in DEVICES
    return hasattr(value, "__cuda_array_interface__")


class DeviceArrays:
    """Checks and conversions of one operator's arrays, for the device that is current when the object is created."""

    def __init__(self, op: Computation, cupy: ModuleType) -> None:
        self.signature = Signature(op)
        self._op, self._cupy, self._device = op, cupy, cupy.cuda.Device().id

    def stream_of(self, values: Sequence[Any]) -> AbstractContextManager[Any]:
        """Return a context in which CuPy uses torch's stream, if the first device array is torch's; else a null context."""
        first = next((value for value in values if lies_on_device(value)), None)
        if first is None or _library(first) != "torch":
            return nullcontext()
        stream = sys.modules["torch"].cuda.current_stream(self._device).cuda_stream
        found: AbstractContextManager[Any] = self._cupy.cuda.ExternalStream(stream)
        return found

    def inputs(self, values: Sequence[Any], copy: bool = True) -> list[Any]:
        """Return the inputs as dense CuPy arrays; ValueError unless number, shapes, types and device are right.

        Inputs that are on the host, not dense or not aligned are copied or, if `copy` is False, raise ValueError.
        """
        self.signature.check_number(values)
        if (current := int(self._cupy.cuda.Device().id)) != self._device:
            raise ValueError(f"{self._op}: GPU {current} is the current device, this kernel is on GPU {self._device}")
        return [self._input(place, value, copy) for place, value in enumerate(values)]

    def outputs(self, value: Any, inputs: Sequence[Any], copy: bool = True) -> list[Any]:
        """Return the arrays to write the outputs to, as CuPy arrays: new ones if `value` is None, else the caller's own.

        `value` is a tuple for several outputs. A caller's array on the host gets a new device array. ValueError if an array does
        not fit or overlaps another.
        """
        tensors = self._op.outputs
        given = self._several(value)
        arrays = [self._output(one, place, inputs, copy) for place, one in enumerate(given)]
        for place in range(len(tensors)):
            if any(self._cupy.may_share_memory(arrays[place], other) for other in arrays[:place]):
                raise ValueError(f"{self._op}: outputs overlap, expected memory of its own for each")
        return arrays

    def _several(self, value: Any) -> list[Any]:
        """Return the caller's array for each output, or None for each if no output was given; ValueError for a wrong number."""
        count = len(self._op.outputs)
        if count == 1 or value is None:
            return [value] * count
        if not isinstance(value, (tuple, list)) or len(value) != count:
            raise ValueError(f"{self._op}: out is {type(value).__qualname__}, expected a tuple of {count} arrays")
        return list(value)

    def _output(self, value: Any, place: int, inputs: Sequence[Any], copy: bool) -> Any:
        tensor = self._op.outputs[place]
        if value is None or (copy and not lies_on_device(value)):
            if value is not None:
                self.signature.output(value, (), place)
            return self._cupy.empty(tensor.shape, dtype=np.dtype(ARRAY_DTYPE[tensor.dtype]))
        array = self._viewed(value, tensor, "out")
        if not is_readable(array):
            raise ValueError(f"{self._op}: out is not dense in row-major order, or begins at no multiple of {ALIGNMENT} bytes")
        self.signature.check_apart(array, inputs, self._cupy.may_share_memory)
        return array

    def returned(self, outputs: Sequence[Any], values: Sequence[Any], out: Any) -> Any:
        """Return the result of a call: the caller's own `out`, filled in, or the new outputs; a tuple for several outputs.

        New outputs become arrays of the first device input's library, or NumPy arrays if no input is on a device.
        """
        given = self._several(out)
        found = tuple(self._returned(array, place, values, given[place]) for place, array in enumerate(outputs))
        return found if len(found) > 1 else found[0]

    def _returned(self, output: Any, place: int, values: Sequence[Any], out: Any) -> Any:
        if out is not None:
            if not lies_on_device(out):
                self.signature.output(out, (), place)[...] = self._cupy.asnumpy(output)
            return out
        first = next((value for value in values if lies_on_device(value)), None)
        if first is None:
            return self._cupy.asnumpy(output)
        found = in_library_of(first, output)
        bits = self._op.outputs[place].dtype == "bfloat16" and _library(first) == "torch"
        typed = bits and str(first.dtype) not in ("torch.uint16", "torch.int16")
        return found.view(sys.modules["torch"].bfloat16) if typed else found

    def _input(self, place: int, value: Any, copy: bool) -> Any:
        tensor = self._op.inputs[place]
        if lies_on_device(value):
            array = self._viewed(value, tensor, f"input {tensor.name}")
            return array if is_readable(array) else self.signature.copied(array, tensor, copy)
        if not copy:
            raise ValueError(f"{self._op}: input {tensor.name} lies on the host, and a bound call copies nothing")
        return self._cupy.asarray(self.signature.input(place, value))

    def _viewed(self, value: Any, tensor: Tensor, name: str) -> Any:
        """Return a device array as a CuPy array on the same memory; ValueError unless GPU, shape and type are right."""
        if bits := _torch_bits(value):
            value = value.view(getattr(sys.modules["torch"], bits))
        if isinstance(value, self._cupy.ndarray):
            array = value
        elif hasattr(value, "__dlpack_device__"):
            self._check_gpu(int(value.__dlpack_device__()[1]), name)
            array = self._cupy.from_dlpack(value)
        else:
            array = self._cupy.asarray(value)
        self._check_gpu(int(array.device.id), name)
        return self.signature.checked(array, tensor, name)

    def _check_gpu(self, number: int, name: str) -> None:
        """Check that an array is on this kernel's GPU; ValueError if not, since its memory may not be accessible."""
        if number != self._device:
            raise ValueError(f"{self._op}: {name} lies on GPU {number}, this kernel is on GPU {self._device}")


def is_readable(array: Any) -> bool:
    """Return whether kernels can read an array in place.

    It must be dense and aligned, since a misaligned wide load faults.
    """
    return bool(array.flags.c_contiguous) and array.data.ptr % ALIGNMENT == 0


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


_BITS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8"}
"""Torch types without a counterpart in CuPy and NumPy -> integer types of the same width, as which their bits are read."""


def _torch_bits(value: Any) -> str:
    """Return the name of the integer type with which a torch tensor's bits are read.

    The name is empty for types that CuPy has, and for other libraries.
    """
    if _library(value) != "torch":
        return ""
    return next((bits for name, bits in _BITS.items() if value.dtype is getattr(sys.modules["torch"], name, None)), "")
