"""As much of `cuda.bindings.driver` as tensor maps need: keeps the calls it gets, and refuses what the driver would."""

from __future__ import annotations

import ctypes
import enum
import types
from dataclasses import dataclass
from typing import Any

import numpy as np


class Status(int):
    """A CUresult."""

    def __repr__(self) -> str:
        return "<CUresult.CUDA_SUCCESS: 0>" if self == 0 else "<CUresult.CUDA_ERROR_INVALID_VALUE: 1>"


@dataclass(frozen=True)
class Encoded:
    """What a map was made of, innermost dimension first."""

    kind: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: str


class Map:
    """128 bytes that begin with the number of the call."""

    def __init__(self, number: int) -> None:
        self.bytes = ctypes.create_string_buffer(number.to_bytes(8, "little"), 128)

    def getPtr(self) -> int:  # noqa: N802 - the bindings' name
        return ctypes.addressof(self.bytes)


class FastEnumMeta(type):
    """Metaclass of enumerations that are not `enum.Enum`: members are attributes, and the class takes no subscript."""

    def __new__(cls, name: str, bases: tuple, members: dict) -> FastEnumMeta:
        made = super().__new__(cls, name, bases, {})
        for member, value in members.items():
            if isinstance(value, int):
                setattr(made, member, int.__new__(made, value))
                getattr(made, member).name = member
        return made


class FastEnum(int, metaclass=FastEnumMeta):
    """As `cuda.bindings._internal._fast_enum.FastEnum` of 13.5.0; 12.9.10 and 13.2.0 have it too, 13.1.1 has not."""


KINDS = {"13.0": enum.IntEnum, "13.5": lambda name, members: FastEnumMeta(name, (FastEnum,), members)}
"""What makes an enumeration of a release of the bindings from its name and members."""

MEMBERS = {
    "CUtensorMapDataType": {
        "DATA_TYPE_UINT8": 0, "DATA_TYPE_INT32": 3, "DATA_TYPE_FLOAT16": 6, "DATA_TYPE_FLOAT32": 7, "DATA_TYPE_BFLOAT16": 9,
        "DATA_TYPE_TFLOAT32": 11,
    },
    "CUtensorMapInterleave": {"INTERLEAVE_NONE": 0},
    "CUtensorMapSwizzle": {"SWIZZLE_NONE": 0, "SWIZZLE_32B": 1, "SWIZZLE_64B": 2, "SWIZZLE_128B": 3},
    "CUtensorMapL2promotion": {"L2_PROMOTION_L2_256B": 3},
    "CUtensorMapFloatOOBfill": {"FLOAT_OOB_FILL_NONE": 0},
}  # fmt: skip
"""Members that maps are made of, without the prefix that all have, and their numbers in `cuda.h`."""


class Driver(types.ModuleType):
    """Stands in for the module; `encoded` holds every map that was made."""

    def __init__(self, kind: str = "13.5") -> None:
        super().__init__("cuda.bindings.driver")
        self.encoded: list[Encoded] = []
        self.cuuint64_t = self.cuuint32_t = int
        for name, members in MEMBERS.items():
            setattr(self, name, KINDS[kind](name, {f"CU_TENSOR_MAP_{member}": value for member, value in members.items()}))

    def cuTensorMapEncodeTiled(  # noqa: N802 - the bindings' name
        self, kind: Any, rank: int, address: int, shape: list, strides: list, box: list, steps: list, *rest: Any
    ) -> tuple[Status, Map | None]:
        assert len(shape) == len(box) == len(steps) == rank == len(strides) + 1
        assert steps[0] == 1 and max(steps) <= 8 and all(s % 16 == 0 for s in strides) and max(box) <= 256
        if address % 16:
            return Status(1), None
        names = kind.name, rest[1].name
        self.encoded.append(Encoded(names[0], address, tuple(shape), tuple(strides), tuple(box), tuple(steps), names[1]))
        return Status(0), Map(len(self.encoded) - 1)

    def of(self, argument: np.ndarray) -> Encoded:
        """The map that a kernel got as an argument."""
        assert argument.shape == (1,) and argument.itemsize == 128
        return self.encoded[int(argument.view(np.uint64)[0])]
