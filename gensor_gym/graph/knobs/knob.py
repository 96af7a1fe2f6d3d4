"""Definition of a knob, and names of the hardware limits that a change of a knob may break."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

REGISTERS, CODE, SHARED, REDUCE_SHARES, L1_TILE, TASK_TILE, PACKING, SPLIT, MATRIX, WARPS = (1 << i for i in range(10))
EVERY = (1 << 10) - 1
"""Bit set of all hardware limits, one bit for each. Both kinds of hardware: registers (and threads), code, at least one
step for every part of a split reduction. GPU: shared memory, work for all threads that share a reduction, whole fragments on
tensor cores and no knob that programs on tensor cores lack, whole warps over the block's threads. CPU: L1 tile, task tile,
packing for vectors of channels."""


@dataclass(frozen=True, kw_only=True)
class Knob:
    """A discrete choice of a program besides its tiles, such as the unrolling factor, with at most 16 values.

    Values are in increasing order; the first is the default.
    """

    place: int
    """Index of the knob in a schedule's row (`graph/tables/layout.py`). The row stores there which of `values` is chosen."""
    name: str
    kind: Literal["gpu", "cpu", "both"]
    values: tuple[int, ...]
    doc: str
    """Meaning of the values. A test compares the text with the knob's line of the table in `docs/design.md`."""
    cost: str
    """Cost of a larger value, in words."""
    is_useful: Callable[[Operator, Hardware, int], bool] = lambda op, hardware, value: True
    """Whether a value other than the default is useful for an operator on a machine of the knob's kind."""
    masked: tuple[int, ...] = ()
    """Values that the generators do not support yet."""
    raising: int = 0
    """Limits, as the bits of an int, that the next higher value may break in a program that keeps all limits."""
    lowering: int = 0
    """Limits, as the bits of an int, that the next lower value may break."""
    cores: tuple[int, ...] = (0, 1, 2)
    """Values of knob `tensor_core` with which programs use this knob. Other programs must keep the default (limit MATRIX)."""
    of_operands: bool = False
    """Whether the knob concerns copies, layout and traversal of operands, so that space `medium` changes it."""
    structural: bool = False
    """Whether the knob changes the generated code as a whole, so that the model's errors differ between its values."""

    @property
    def default(self) -> int:
        """The first value. Programs that do not use the knob have it."""
        return self.values[0]

    @property
    def available(self) -> tuple[int, ...]:
        """Values for which the code generators can produce code."""
        return tuple(value for value in self.values if value not in self.masked)

    def usable(self, op: Operator, hardware: Hardware) -> tuple[int, ...]:
        """Return the values that the operator can use on this hardware and that the generators support.

        On a kind of hardware (`cpu`, `gpu`) that lacks the knob this is only the default.
        """
        if self.kind not in ("both", hardware.kind):
            return (self.default,)
        return tuple(v for v in self.available if v == self.default or self.is_useful(op, hardware, v))
