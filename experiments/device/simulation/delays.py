"""How long things take on a GPU machine, drawn from what was recorded there and from what its first runs said.

Compilations are drawn from the rows' `compile_seconds`. A trial takes `TRIAL` seconds and `CHECKED` seconds for each byte of the
operator's arrays that is written, read back and compared on the host: a least-squares fit to the times between two rows of
the same operator in `results/h100/raw/recorded.jsonl.gz`. References are those of NumPy on one thread: 15 s for float32
matrices of 4096 x 4096 and 38 s for 8192 x 8192, which grows as the bytes to the power 0.67. Operators whose references are
whole (`FULL_FLOPS`) take `SMALL` seconds a byte and `SMALL_RATE` operations a second, which is our estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gensor_gym import operators
from gensor_gym.measure.answers.expectation import FULL_FLOPS
from gensor_gym.measure.measurement import Status
from gensor_gym.operators.types import Operator

LONGEST = 0.6
"""Rows further apart than so many seconds were apart because somebody waited for a compilation."""
COMPARED = 3.0
SMALL, SMALL_RATE = 2e-8, 1e10
_LARGE, _LARGE_SECONDS, _POWER = 3 * 4 * 4096**2, 15.0, 0.67


@dataclass(frozen=True)
class Costs:
    """What the machine charges for other things, in seconds."""

    numba: float = 40.0
    """Until the rules are compiled, where nothing was."""
    walks: float = 55.0
    """Until model and walks are compiled as well, 1.4 times as much: 87 s and 63 s on a slower machine."""
    start: float = 3.0
    """Of a stage: its process, its worker, the device's context."""
    torch: float = 8.0
    """Until torch is imported, in the first comparison."""
    comparison: float = 1.5
    """With the library, beside the checks of both sides, which are those of `COMPARED` trials."""
    construct: float = 1.6
    """A construction of candidates on one thread."""
    draw: float = 0.6
    """Drawing the programs of a family."""
    text: float = 0.004
    """A kernel's text."""


@dataclass(frozen=True)
class Delays:
    """Draws of one machine."""

    compile_seconds: np.ndarray
    """Seconds [N] of recorded compilations."""
    trial: float
    """Seconds of a trial beside its checks."""
    per_byte: float
    """Seconds of a trial's checks for each byte of the operator's arrays."""
    reference_scale: float = 1.0
    """Of references: 1 for NumPy on one thread."""
    costs: Costs = Costs()

    @staticmethod
    def of(rows: Sequence[Mapping[str, Any]]) -> Delays:
        """From rows of recorded tables; ValueError where none ran well."""
        ran = [row for row in rows if row["status"] == Status.OK.value]
        if not ran:
            raise ValueError("delays are drawn from recorded rows, and none of these ran well")
        compiled = np.array([row["conditions"]["compile_seconds"] for row in ran])
        ordered = sorted(ran, key=lambda row: row["created"])
        pairs = [
            (nbytes(operators.parse(b["operator"])), b["created"] - a["created"])
            for a, b in zip(ordered[:-1], ordered[1:], strict=True)
            if (a["run"], a["operator"]) == (b["run"], b["operator"]) and b["created"] - a["created"] < LONGEST
        ]
        size, seconds = np.array(pairs).T
        slope, base = np.polyfit(size, seconds, 1)
        return Delays(compiled, float(base), float(slope))

    def compiled(self, rng: np.random.Generator) -> float:
        """Seconds of one compilation."""
        return float(rng.choice(self.compile_seconds))

    def trial_seconds(self, op: Operator) -> float:
        """Seconds of one trial."""
        return self.trial + self.per_byte * nbytes(op)

    def comparison(self, op: Operator) -> float:
        """Seconds of a comparison with the library."""
        return self.costs.comparison + COMPARED * self.trial_seconds(op)

    def reference(self, op: Operator) -> float:
        """Seconds until an operator's references are there."""
        if op.flops <= FULL_FLOPS:
            seconds = SMALL * nbytes(op) + op.flops / SMALL_RATE
        else:
            seconds = _LARGE_SECONDS * (nbytes(op) / _LARGE) ** _POWER
        return self.reference_scale * seconds


def nbytes(op: Operator) -> int:
    """Bytes of an operator's arrays."""
    return int(op.compulsory_bytes)
