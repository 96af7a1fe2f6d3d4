"""The numbers that a row nest computes, and their C: float32, or int64 if all nodes of its graph are integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gensor_gym.codegen.c.micro.vectors import prelude
from gensor_gym.codegen.gir.expressions import c_text, number
from gensor_gym.codegen.gir.whole import Whole
from gensor_gym.dataflow.expressions import Expression
from gensor_gym.dataflow.nodes import Reduction
from gensor_gym.gir.nest import RowNest
from gensor_gym.operators.bodies import REDUCTIONS
from gensor_gym.operators.bodies import Reduction as Joining

_JOINED: dict[Reduction, Joining] = {"sum": REDUCTIONS["add"], "max": REDUCTIONS["max"]}


class Element(Protocol):
    """A type of numbers in generated C."""

    @property
    def c(self) -> str:
        """C type."""

    @property
    def nbytes(self) -> int:
        """Size of a number in bytes."""

    def number(self, value: float) -> str:
        """C constant of a number."""

    def identity(self, reduction: Reduction) -> float:
        """Neutral element of a reduction."""

    def text(self, expression: Expression, names: Mapping[str, str], inverses: Mapping[str, str], width: int) -> str:
        """C text of an expression; `names` and `inverses` are as in `expressions.c_text`."""

    def joined(self, reduction: Reduction, a: str, b: str, width: int) -> str:
        """C text that joins two partial results of a reduction."""

    def folded(self, reduction: Reduction, x: str, width: int) -> str:
        """C text that reduces the lanes of a vector to one number."""

    def prelude(self, body: str) -> str:
        """C definitions of the types and functions that a kernel's text uses."""


class Float:
    """float32 as the type of a row nest's numbers (`Element`)."""

    c, nbytes = "float", 4
    number, text = staticmethod(number), staticmethod(c_text)

    def identity(self, reduction: Reduction) -> float:
        """Neutral element of a reduction."""
        return _JOINED[reduction].identity

    def joined(self, reduction: Reduction, a: str, b: str, width: int) -> str:
        """C text that joins two partial results of a reduction."""
        return _JOINED[reduction].joined(a, b, width)

    def folded(self, reduction: Reduction, x: str, width: int) -> str:
        """C text that reduces the lanes of a vector to one number."""
        return f"fold_{_JOINED[reduction].name}_{width}({x})"

    def prelude(self, body: str) -> str:
        """C definitions of the types and functions that a kernel's text uses."""
        return prelude(body, "float", "int8_t")


FLOAT, WHOLE = Float(), Whole()


def element_of(nest: RowNest) -> Element:
    """Type of the numbers that a nest computes."""
    return WHOLE if nest.graph.whole else FLOAT
