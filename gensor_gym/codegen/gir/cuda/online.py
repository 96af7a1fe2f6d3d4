"""CUDA of a sum of exponentials less a running maximum (`gensor_gym.gir.online`): each lane has a maximum and a sum."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from gensor_gym.codegen.cuda.text import Writer
from gensor_gym.codegen.gir.expressions import number
from gensor_gym.dataflow.bounds import OVERFLOW

LOWEST = number(-OVERFLOW)
"""Initial value of running maxima, so that minus infinity adds 0 and not NaN."""


@dataclass(frozen=True)
class RunningSum:
    """The variables of a lane for the reduction whose own variable is `name`."""

    name: str

    @property
    def _base(self) -> str:
        return f"base_{self.name}"

    @property
    def _sum(self) -> str:
        return f"sum_{self.name}"

    def begun(self) -> str:
        """Declaration of an empty sum."""
        return f"float {self._base} = {LOWEST}, {self._sum} = 0.0f;"

    def take(self, out: Writer, elements: Callable[[Writer], AbstractContextManager[None]], value: str) -> None:
        """Add the elements of a step; `value` is minus infinity for missing ones; the sum is scaled once for all."""
        grown = f"grown_{self.name}"
        out.line(f"float {grown} = {self._base};")
        with elements(out):
            out.line(f"{grown} = max_1({grown}, {value});")
        out.line(f"{self._sum} *= exp_1({self._base} - {grown});")
        with elements(out):
            out.line(f"{self._sum} += exp_1({value} - {grown});")
        out.line(f"{self._base} = {grown};")

    def scaled(self, top: str) -> str:
        """The lane's sum, scaled to a maximum."""
        return f"{self._sum} * exp_1({self._base} - {top})"


def floored(top: str) -> str:
    """The maximum of a part of a row that may have no finite number."""
    return f"max_1({top}, {LOWEST})"
