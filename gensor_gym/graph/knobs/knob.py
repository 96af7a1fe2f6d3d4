"""Definition of a knob, and the limits that a change of a knob may break."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

REGISTERS, CODE, SHARED, REDUCE_SHARES, L1_TILE, TASK_TILE, PACKING, SPLIT, MATRIX, WARPS = (1 << i for i in range(10))
EVERY = (1 << 10) - 1
"""Limits as bits, and the set of all limits.

Both kinds of hardware: registers (and threads), code, at least one step for every part of a split reduction. GPU: shared memory,
work for all threads that share a reduction, whole fragments on tensor cores and no knob that programs on tensor cores lack, whole
warps over the block's threads. CPU: L1 tile, task tile, packing for vectors of channels.
"""


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One discrete choice: at most 16 values in increasing order. The first value is the default."""

    place: int
    """Index in a row of the entry that stores the knob's value, as an index into `values` (`graph/tables/layout.py`)."""
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
    """Limits that the next higher value may break in a program that keeps all limits. Other limits are unaffected."""
    lowering: int = 0
    """Limits that the next lower value may break."""
    cores: tuple[int, ...] = (0, 1, 2)
    """Values of knob `tensor_core` whose programs use the knob. Other programs keep the default, or break limit MATRIX."""
    of_operands: bool = False
    """Whether the knob concerns copies, layout and traversal of operands. Space `medium` changes these knobs."""
    structural: bool = False
    """Whether the knob changes the generated code as a whole. The model's errors are similar for programs that agree in such
    knobs."""

    @property
    def default(self) -> int:
        """Value of programs that do not use the knob."""
        return self.values[0]

    @property
    def available(self) -> tuple[int, ...]:
        """Values that the generators support."""
        return tuple(value for value in self.values if value not in self.masked)

    def usable(self, op: Operator, hardware: Hardware) -> tuple[int, ...]:
        """Values that the operator can use and the generators support. Only the default on the other kind of hardware."""
        if self.kind not in ("both", hardware.kind):
            return (self.default,)
        return tuple(v for v in self.available if v == self.default or self.is_useful(op, hardware, v))
