"""The type of the numbers that a row nest computes, and its C text: float32, or int64 if all nodes of its graph are integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from gensor_gym.codegen.c.micro.vectors import prelude
from gensor_gym.codegen.gir.expressions import c_text, number
from gensor_gym.codegen.gir.whole import Whole
from gensor_gym.dataflow.expressions import Expression
from gensor_gym.dataflow.nodes import Joining, Reduction
from gensor_gym.gir.nest import RowNest
from gensor_gym.operators.bodies import REDUCTIONS
from gensor_gym.operators.bodies import Reduction as Partial

_PRODUCT = Partial("multiply", np.multiply, "prod", 1.0, infix="*")
_JOINED: dict[Joining, Partial] = {"sum": REDUCTIONS["add"], "max": REDUCTIONS["max"], "prod": _PRODUCT}


class Element(Protocol):
    """Protocol of the type of a row nest's numbers, with the C text of its operations."""

    @property
    def c(self) -> str:
        """C type."""

    @property
    def nbytes(self) -> int:
        """Size of a number in bytes."""

    def number(self, value: float) -> str:
        """Return the C constant of a number."""

    def identity(self, reduction: Reduction) -> float:
        """Return the neutral element of a reduction, such as 0 for a sum."""

    def text(self, expression: Expression, names: Mapping[str, str], inverses: Mapping[str, str], width: int) -> str:
        """Return the C text of an expression on vectors of `width` lanes.

        `names` maps operands to variables, `inverses` some operands x to variables that contain 1 / x.
        """

    def joined(self, reduction: Joining, a: str, b: str, width: int) -> str:
        """Return the C text that joins two partial results, `a` and `b`, of a reduction or scatter."""

    def folded(self, reduction: Reduction, x: str, width: int) -> str:
        """Return the C text that reduces the lanes of the vector `x` to one number."""

    def prelude(self, body: str) -> str:
        """Return the C definitions of the types and functions that a kernel's text `body` uses."""


class Float:
    """float32 as the type of a row nest's numbers (`Element`)."""

    c, nbytes = "float", 4
    number, text = staticmethod(number), staticmethod(c_text)

    def identity(self, reduction: Reduction) -> float:
        """Return the neutral element of a reduction, such as 0 for a sum."""
        return _JOINED[reduction].identity

    def joined(self, reduction: Joining, a: str, b: str, width: int) -> str:
        """Return the C text that joins two partial results, `a` and `b`, of a reduction or scatter."""
        return _JOINED[reduction].joined(a, b, width)

    def folded(self, reduction: Reduction, x: str, width: int) -> str:
        """Return the C text that reduces the lanes of the vector `x` to one number."""
        return f"fold_{_JOINED[reduction].name}_{width}({x})"

    def prelude(self, body: str) -> str:
        """Return the C definitions of the types and functions that a kernel's text `body` uses."""
        return prelude(body, "float", "int8_t")


FLOAT, WHOLE = Float(), Whole()


def element_of(nest: RowNest) -> Element:
    """Return the type of the numbers that a row nest computes, float32 or int64."""
    return WHOLE if nest.graph.whole else FLOAT
