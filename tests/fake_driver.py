"""As much of `cuda.bindings.driver` as tensor maps need: keeps the calls it gets, and refuses what the driver would."""

from __future__ import annotations

import ctypes
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


class Names:
    """An enumeration whose members are their names."""

    def __getitem__(self, name: str) -> str:
        return name


class Driver(types.ModuleType):
    """Stands in for the module; `encoded` holds every map that was made."""

    def __init__(self) -> None:
        super().__init__("cuda.bindings.driver")
        self.encoded: list[Encoded] = []
        self.cuuint64_t = self.cuuint32_t = int
        self.CUtensorMapDataType = self.CUtensorMapInterleave = self.CUtensorMapSwizzle = Names()
        self.CUtensorMapL2promotion = self.CUtensorMapFloatOOBfill = Names()

    def cuTensorMapEncodeTiled(  # noqa: N802 - the bindings' name
        self, kind: str, rank: int, address: int, shape: list, strides: list, box: list, steps: list, *rest: Any
    ) -> tuple[Status, Map | None]:
        assert len(shape) == len(box) == len(steps) == rank == len(strides) + 1
        assert steps[0] == 1 and max(steps) <= 8 and all(s % 16 == 0 for s in strides) and max(box) <= 256
        if address % 16:
            return Status(1), None
        self.encoded.append(Encoded(kind, address, tuple(shape), tuple(strides), tuple(box), tuple(steps), rest[1]))
        return Status(0), Map(len(self.encoded) - 1)

    def of(self, argument: np.ndarray) -> Encoded:
        """The map that a kernel got as an argument."""
        assert argument.shape == (1,) and argument.itemsize == 128
        return self.encoded[int(argument.view(np.uint64)[0])]
