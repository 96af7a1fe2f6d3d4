"""The type of the numbers that a row nest computes on a GPU: float32, or int64 if all nodes of its graph are integers."""

from __future__ import annotations

import re

from gensor_gym.codegen.gir.elements import FLOAT, Element
from gensor_gym.codegen.gir.whole import NUMBERS, Whole, needed_numbers
from gensor_gym.dataflow.whole import LEAST, whole_number
from gensor_gym.gir.nest import RowNest

_LEAST = f"({LEAST + 1}ll - 1)"
_NAMES = {
    "static inline": "__device__ __forceinline__", "uint64_t": "unsigned long long", "int64_t": "long long", "INT64_MIN": _LEAST,
}  # fmt: skip
"""C text in definitions of integer functions -> CUDA text that needs no headers."""


class CudaWhole(Whole):
    """int64 as the type of a row nest's numbers in CUDA."""

    c = "long long"

    def number(self, value: float) -> str:
        """Return the CUDA constant of a number; an infinity becomes the end of the range of int64."""
        made = whole_number(value)
        return _LEAST if made == LEAST else f"({made}ll)" if made < 0 else f"{made}ll"


WHOLE = CudaWhole()


def element_of(nest: RowNest) -> Element:
    """Return the type of the numbers that a row nest computes, float32 or int64."""
    return WHOLE if nest.graph.whole else FLOAT


def whole_functions(text: str) -> str:
    """Return the CUDA definitions of the integer functions that a text calls.

    Include guards let the emulator join several texts.
    """
    found = ""
    for name in needed_numbers(text):
        body = NUMBERS[name]
        for old, new in _NAMES.items():
            body = re.sub(rf"\b{old}\b", new, body)
        found += f"#ifndef HAS_WHOLE_{name}\n#define HAS_WHOLE_{name}\n{body}#endif\n"
    return found + "\n"
