"""CUDA text of online reductions: sums of exp(x - maximum) with a running maximum in each lane (`gensor_gym.gir.online`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from gensor_gym.codegen.cuda.text import Writer
from gensor_gym.codegen.gir.expressions import number
from gensor_gym.dataflow.bounds import OVERFLOW

LOWEST = number(-OVERFLOW)
"""CUDA constant with which running maxima begin, so that minus infinity adds 0 and not NaN."""


@dataclass(frozen=True)
class RunningSum:
    """Writer of a lane's online sum, with variables for its running maximum and its sum.

    The variable of the result is `name`.
    """

    name: str

    @property
    def _base(self) -> str:
        return f"base_{self.name}"

    @property
    def _sum(self) -> str:
        return f"sum_{self.name}"

    def begun(self) -> str:
        """Return the CUDA declaration of an empty sum."""
        return f"float {self._base} = {LOWEST}, {self._sum} = 0.0f;"

    def take(self, out: Writer, elements: Callable[[Writer], AbstractContextManager[None]], value: str) -> None:
        """Write the addition of a step's elements to the sum.

        The sum is rescaled once; a missing element is minus infinity. `value` is the text of an element.
        """
        grown = f"grown_{self.name}"
        out.line(f"float {grown} = {self._base};")
        with elements(out):
            out.line(f"{grown} = max_1({grown}, {value});")
        out.line(f"{self._sum} *= exp_1({self._base} - {grown});")
        with elements(out):
            out.line(f"{self._sum} += exp_1({value} - {grown});")
        out.line(f"{self._base} = {grown};")

    def scaled(self, top: str) -> str:
        """Return the CUDA text of the lane's sum, rescaled to the maximum `top`."""
        return f"{self._sum} * exp_1({self._base} - {top})"


def floored(top: str) -> str:
    """Return the CUDA text of the maximum of `top` and `LOWEST`, since a part of a row may have no finite number."""
    return f"max_1({top}, {LOWEST})"
