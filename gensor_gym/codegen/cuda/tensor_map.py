"""Tensor maps: how the tensor memory accelerator (TMA, sm_90 and newer) finds the boxes of an array.

A kernel's `TensorMap` is a description without an address. For an array on the device the driver encodes it into 128
opaque bytes, which a kernel takes by value.
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
"""Size of an encoded map."""
MAX_BOX = 256
"""Elements that a box goes over along a dimension, at most."""
UNIT = 16
"""Bytes that row pitches and the rows of a box are multiples of."""

_TYPES = {
    "float32": "FLOAT32", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "int8": "UINT8", "int32": "INT32", "tf32": "TFLOAT32",
    "float8_e4m3fn": "UINT8",
}  # fmt: skip


_NUMBERS = {"UINT8": 0, "INT32": 3, "FLOAT16": 6, "FLOAT32": 7, "BFLOAT16": 9, "TFLOAT32": 11}
"""Values of CUtensorMapDataType in the header cuda.h."""
_SWIZZLES = (0, 32, 64, 128)
"""Bytes, by their number in CUtensorMapSwizzle."""
_L2_256B = 3
"""Value of CUtensorMapL2promotion."""


class TensorMapError(RuntimeError):
    """The driver refused a tensor map, or is missing; the message holds its status."""


@dataclass(frozen=True)
class TensorMap:
    """Boxes of one argument of a kernel; dimensions outermost first, R of them, 1 to 5.

    `argument` is the position among inputs, output, workspace; the array begins `offset` bytes into it. A box is copied with its
    innermost dimension contiguous; elements outside `shape` come as zeros. `steps` are distances in elements of the array between
    neighbours of a box (empty: 1 everywhere; never along the innermost dimension). `swizzle` is the length in bytes of rows whose
    16-byte units are permuted (0: none). ValueError above the hardware's limits (of `cuTensorMapEncodeTiled`).

    Type tf32 is float32 elements that the copy rounds to tf32: 10 bits of mantissa, lower bits are undefined. CUTLASS and Triton
    let TMA round so, but it is not documented to the last bit; `tests/experiments/device/test_gpu_tf32_map.py` checks a device.
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
        """Elements of the array that a box goes over along each dimension, [R]."""
        return tuple(n * step for n, step in zip(self.box, self.every, strict=True))

    @property
    def every(self) -> tuple[int, ...]:
        """`steps`, written out, [R]."""
        return self.steps or (1,) * len(self.box)

    def __post_init__(self) -> None:
        """Check the limits."""
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
    """The arguments of `cuTensorMapEncodeTiled` by their names there, as plain numbers, without an address.

    Dimensions are counted innermost first, as the driver counts them; it knows the innermost stride.
    """
    return {
        "tensorDataType": _NUMBERS[_TYPES[tensor_map.dtype]], "tensorRank": len(tensor_map.shape),
        "globalDim": [*reversed(tensor_map.shape)], "globalStrides": [*reversed(tensor_map.strides)],
        "boxDim": [*reversed(tensor_map.reach)], "elementStrides": [*reversed(tensor_map.every)],
        "interleave": 0, "swizzle": _SWIZZLES.index(tensor_map.swizzle), "l2Promotion": _L2_256B, "oobFill": 0,
    }  # fmt: skip


def encode(tensor_map: TensorMap, address: int) -> np.ndarray:
    """The map of the array at a device address: [1] of 128 bytes, which CuPy passes to a kernel by value.

    TensorMapError when the driver is missing or refuses.
    """
    driver = _driver()
    try:
        status, encoded = driver.cuTensorMapEncodeTiled(*_fields(driver, tensor_map, address))
    except RuntimeError as error:  # the bindings load the library at the first call
        raise TensorMapError(f"the CUDA driver does not load: {error}") from error
    if int(status):
        raise TensorMapError(f"cuTensorMapEncodeTiled: {status!r} for {tensor_map} at {address:#x}")
    words = np.frombuffer(ctypes.string_at(int(encoded.getPtr()), MAP_BYTES), dtype=np.uint64)
    return words.view([("opaque", np.uint64, (MAP_BYTES // 8,))])


def with_maps(maps: Sequence[TensorMap], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """All arguments of an entry: the encoded maps, then the plain ones, which are CuPy arrays."""
    return (*(encode(m, arguments[m.argument].data.ptr + m.offset) for m in maps), *arguments)


def _driver() -> ModuleType:
    """The bindings of the driver."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise TensorMapError("tensor maps are encoded through cuda-bindings: pip install cuda-bindings") from error
    return driver


def _fields(driver: ModuleType, tensor_map: TensorMap, address: int) -> tuple[Any, ...]:
    """Arguments of the driver's call; its bindings take members of enumerations where `described` has their numbers."""
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
    """`CU_TENSOR_MAP_<name>` of an enumeration of the bindings, where newer releases have no `enum.Enum`."""
    return getattr(enumeration, f"CU_TENSOR_MAP_{name}")
