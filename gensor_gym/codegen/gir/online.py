"""C of a sum of exponentials less a running maximum (`gensor_gym.gir.online`).

The running maximum begins at the lowest finite number, so that minus infinity adds 0, unless it is the whole row's maximum: then
the sum is NaN, as in the definition.
"""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.codegen.gir.expressions import number
from gensor_gym.dataflow.bounds import OVERFLOW


@dataclass(frozen=True)
class RunningSum:
    """The variables of one row: `width` maxima and sums side by side."""

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
        """Declaration of an empty sum."""
        return f"vec{self.width} {self._base} = splat_{self.width}({number(-OVERFLOW)}), {self._sum} = splat_{self.width}(0.0f);"

    def taken(self, values: list[str]) -> list[str]:
        """Add vectors to the sum, which is scaled once for all of them."""
        grown, w = f"grown_{self.cell}_{self.row}_0", self.width
        largest = _halved(values, f"max_{w}({{}}, {{}})")
        added = _halved([f"exp_{w}({value} - {grown})" for value in values], "({} + {})")
        return [
            f"const vec{w} {grown} = max_{w}({self._base}, {largest});",
            f"{self._sum} = {self._sum} * exp_{w}({self._base} - {grown}) + {added};",
            f"{self._base} = {grown};",
        ]

    def folded(self, top: str) -> str:
        """The sum of all lanes, scaled to the whole maximum `top`."""
        w = self.width
        return f"fold_add_{w}({self._sum} * exp_{w}({self._base} - splat_{w}({top})))"


def _halved(parts: list[str], both: str) -> str:
    """One text that combines several, in halves."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return both.format(_halved(parts[:half], both), _halved(parts[half:], both))
