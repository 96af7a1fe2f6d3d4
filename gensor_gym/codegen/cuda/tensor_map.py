"""Tensor maps: descriptions of an array for the tensor memory accelerator (TMA, sm_90 and newer), which copies boxes of it.

A kernel's `TensorMap` has no address. For an array on the device, the driver encodes the map and the address into 128 opaque
bytes, which a kernel takes by value.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from gensor_gym.graph.matrices.lying import MAP_STEP
from gensor_gym.operators.types import ITEM_BYTES

MAP_BYTES = 128
"""Number of bytes of a tensor map as the driver encodes it."""
MAX_BOX = 256
"""Largest number of elements of the array that a box spans along a dimension."""
UNIT = 16
"""Offsets, strides and rows of a box must be multiples of this number of bytes."""

_TYPES = {
    "float32": "FLOAT32", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "int8": "UINT8", "int32": "INT32", "tf32": "TFLOAT32",
    "float8_e4m3fn": "UINT8",
}  # fmt: skip


_NUMBERS = {"UINT8": 0, "INT32": 3, "FLOAT16": 6, "FLOAT32": 7, "BFLOAT16": 9, "TFLOAT32": 11}
"""Numeric values of the enumeration CUtensorMapDataType in the header cuda.h."""
_SWIZZLES = (0, 32, 64, 128)
"""Bytes of a swizzled row, indexed by the value of the enumeration CUtensorMapSwizzle."""
_L2_256B = 3
"""Value of CUtensorMapL2promotion for 256 bytes."""


class TensorMapError(RuntimeError):
    """The driver is missing or rejected a tensor map; the message contains its status."""


@dataclass(frozen=True)
class TensorMap:
    """A tensor map: an array in one argument of a kernel, and the boxes in which it is copied.

    Dimensions are outermost first; their number R is 1 to 5. `argument` is the index among inputs, output and workspace, and the
    array begins at byte `offset` of the argument. A box is copied with its innermost dimension contiguous; elements outside
    `shape` become zeros. `steps` are the distances in the array between successive elements of a box. Empty steps mean 1, and the
    innermost step is always 1. `swizzle` is the length in bytes of rows whose 16-byte units are permuted; 0 means no swizzle.
    ValueError if a limit of `cuTensorMapEncodeTiled` is exceeded.

    Type tf32 means float32 elements that the copy rounds to tf32, with 10 bits of mantissa and undefined lower bits. CUTLASS and
    Triton rely on this rounding, but it is not documented to the last bit; `tests/experiments/device/test_gpu_tf32_map.py` checks
    a device.
    """

    argument: int
    dtype: str
    shape: tuple[int, ...]  # [R] elements
    strides: tuple[int, ...]  # [R - 1] bytes, of all dimensions but the innermost
    box: tuple[int, ...]  # [R] elements
    swizzle: int = 128
    offset: int = 0
    steps: tuple[int, ...] = ()  # [R] or empty

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return 4 if self.dtype == "tf32" else ITEM_BYTES[self.dtype]

    @property
    def reach(self) -> tuple[int, ...]:
        """Number of elements of the array that a box spans along each dimension, including skipped elements, [R]."""
        return tuple(n * step for n, step in zip(self.box, self.every, strict=True))

    @property
    def every(self) -> tuple[int, ...]:
        """Distances between successive elements of a box along each dimension, [R]: `steps`, or 1 if it is empty."""
        return self.steps or (1,) * len(self.box)

    def __post_init__(self) -> None:
        if len({len(self.box), len(self.shape), len(self.strides) + 1, len(self.every)}) > 1:
            raise ValueError(f"tensor map of argument {self.argument}: lengths of its fields")
        row = self.box[-1] * self.item
        for broken, words in (
            (not 1 <= len(self.shape) <= 5, f"{len(self.shape)} dimensions: 1 to 5"),
            (self.offset % UNIT or self.offset < 0, f"offset {self.offset}: multiples of {UNIT} bytes"),
            (any(not 1 <= n <= MAP_STEP for n in self.every), f"steps {self.every}: 1 to {MAP_STEP} along each dimension"),
            (self.every[-1] != 1, f"steps {self.every}: 1 along the innermost dimension"),
            (any(stride % UNIT for stride in self.strides), f"strides {self.strides}: multiples of {UNIT} bytes"),
            (any(not 1 <= n <= MAX_BOX for n in self.reach), f"box {self.reach}: 1 to {MAX_BOX} along each dimension"),
            (self.swizzle not in _SWIZZLES, f"swizzle {self.swizzle}: 0, 32, 64 or 128 bytes"),
            (row % UNIT or (self.swizzle and row > self.swizzle), f"rows of {row} bytes: whole {UNIT}, within the swizzle"),
        ):
            if broken:
                raise ValueError(f"tensor map of argument {self.argument}: {words}")


def described(tensor_map: TensorMap) -> dict[str, Any]:
    """Return the arguments of `cuTensorMapEncodeTiled`, by the names they have there, as plain numbers, without an address.

    Dimensions are innermost first, like the driver's. The innermost stride is omitted, because the driver knows it.
    """
    return {
        "tensorDataType": _NUMBERS[_TYPES[tensor_map.dtype]], "tensorRank": len(tensor_map.shape),
        "globalDim": [*reversed(tensor_map.shape)], "globalStrides": [*reversed(tensor_map.strides)],
        "boxDim": [*reversed(tensor_map.reach)], "elementStrides": [*reversed(tensor_map.every)],
        "interleave": 0, "swizzle": _SWIZZLES.index(tensor_map.swizzle), "l2Promotion": _L2_256B, "oobFill": 0,
    }  # fmt: skip


def encode(tensor_map: TensorMap, address: int) -> np.ndarray:
    """Encode a tensor map for the array at a device address.

    Return one element of 128 bytes, which CuPy passes to a kernel by value. TensorMapError if the driver is missing or rejects
    the map.
    """
    driver = bindings()
    try:
        status, encoded = driver.cuTensorMapEncodeTiled(*_fields(driver, tensor_map, address))
    except RuntimeError as error:  # the bindings load the library at the first call
        raise TensorMapError(f"the CUDA driver does not load: {error}") from error
    if int(status):
        raise TensorMapError(f"cuTensorMapEncodeTiled: {status!r} for {tensor_map} at {address:#x}")
    words = np.frombuffer(ctypes.string_at(int(encoded.getPtr()), MAP_BYTES), dtype=np.uint64)
    return words.view([("opaque", np.uint64, (MAP_BYTES // 8,))])


def with_maps(maps: Sequence[TensorMap], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Return all arguments of a kernel's entry: the encoded tensor maps, then `arguments`, which are CuPy arrays."""
    return (*(encode(m, arguments[m.argument].data.ptr + m.offset) for m in maps), *arguments)


def bindings() -> ModuleType:
    """Return the module of the CUDA driver's bindings; TensorMapError if it is not installed."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise TensorMapError("tensor maps are encoded through cuda-bindings: pip install cuda-bindings") from error
    return driver


def _fields(driver: ModuleType, tensor_map: TensorMap, address: int) -> tuple[Any, ...]:
    plain = described(tensor_map)
    return (
        _member(driver.CUtensorMapDataType, f"DATA_TYPE_{_TYPES[tensor_map.dtype]}"),
        plain["tensorRank"],
        address,
        [driver.cuuint64_t(n) for n in plain["globalDim"]],
        [driver.cuuint64_t(n) for n in plain["globalStrides"]],
        [driver.cuuint32_t(n) for n in plain["boxDim"]],
        [driver.cuuint32_t(n) for n in plain["elementStrides"]],
        _member(driver.CUtensorMapInterleave, "INTERLEAVE_NONE"),
        _member(driver.CUtensorMapSwizzle, f"SWIZZLE_{tensor_map.swizzle}B" if tensor_map.swizzle else "SWIZZLE_NONE"),
        _member(driver.CUtensorMapL2promotion, "L2_PROMOTION_L2_256B"),
        _member(driver.CUtensorMapFloatOOBfill, "FLOAT_OOB_FILL_NONE"),
    )


def _member(enumeration: Any, name: str) -> Any:
    """Return the member `CU_TENSOR_MAP_<name>` of an enumeration of the CUDA bindings.

    In newer releases, the enumeration is not an `enum.Enum`.
    """
    return getattr(enumeration, f"CU_TENSOR_MAP_{name}")
