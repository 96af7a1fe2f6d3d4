"""C text of online reductions: sums of exp(x - maximum) with a running maximum (`gensor_gym.gir.online`).

The running maximum begins at the lowest finite number, so that an x of minus infinity adds 0. If all x are minus infinity, the
sum is NaN, as in the definition.
"""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.codegen.gir.expressions import number
from gensor_gym.dataflow.bounds import OVERFLOW


@dataclass(frozen=True)
class RunningSum:
    """The C variables of one row's online sum: a vector of `width` running maxima and a vector of `width` sums."""

    cell: str
    row: int
    width: int

    @property
    def _base(self) -> str:
        return f"base_{self.cell}_{self.row}_0"

    @property
    def _sum(self) -> str:
        return f"sum_{self.cell}_{self.row}_0"

    def begun(self) -> str:
        """Return the C declaration of an empty sum."""
        return f"vec{self.width} {self._base} = splat_{self.width}({number(-OVERFLOW)}), {self._sum} = splat_{self.width}(0.0f);"

    def taken(self, values: list[str]) -> list[str]:
        """Return C statements that add the vectors `values` to the sum, which is rescaled once for all of them."""
        grown, w = f"grown_{self.cell}_{self.row}_0", self.width
        largest = _halved(values, f"max_{w}({{}}, {{}})")
        added = _halved([f"exp_{w}({value} - {grown})" for value in values], "({} + {})")
        return [
            f"const vec{w} {grown} = max_{w}({self._base}, {largest});",
            f"{self._sum} = {self._sum} * exp_{w}({self._base} - {grown}) + {added};",
            f"{self._base} = {grown};",
        ]

    def folded(self, top: str) -> str:
        """Return the C text of the sum over all lanes, rescaled to the maximum `top` of the whole row."""
        w = self.width
        return f"fold_add_{w}({self._sum} * exp_{w}({self._base} - splat_{w}({top})))"


def _halved(parts: list[str], both: str) -> str:
    """Return the C text that combines several expressions as a balanced tree; `both` is the format of a pair."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return both.format(_halved(parts[:half], both), _halved(parts[half:], both))
