"""The stand-in set: operators that replace those of Gensor's Table IV, whose shapes are not public in our sources.

Each class has as many operators as in the figures. Three matrix products are the paper's own (Table V; the order of their extents
is uncertain). The other convolutions, products and pools are Roller's, in the order of its artifact, because Gensor is built on
it. Matrix-vector products have common shapes. An operator of the stand-in set is never compared with an operator of the paper;
only means over a class are.
"""

from __future__ import annotations

from gensor_gym import operators
from gensor_gym.operators.types import Operator

NAMED = (
    "The operators are the stand-in set (see docs/tables.md): the shapes of the paper's Table IV are not public where we looked, "
    "so means over a class are set side by side, never single operators."
)

GEMV = tuple(f"common/gemv_{size}" for size in ("4096x4096", "11008x4096", "16384x1000", "16384x8192", "1000x2048", "1024x1024"))
RTX_4090 = (
    *(f"roller/C{i}" for i in range(6)), *(f"gensor_table5/T{i}" for i in range(1, 4)), *(f"roller/M{i}" for i in range(6)),
    *GEMV, *(f"roller/P{i}" for i in range(3)),
)  # fmt: skip
ORIN = (*(f"roller/C{i}" for i in range(3)), *(f"gensor_table5/T{i}" for i in range(1, 4)), "roller/M1", *GEMV[:5])
HOST = (
    "ansor/C2D1_b1", "ansor/C2D2_b1", "ansor/C2D3_b1", "ansor/GMM2_b1", "common/gemm_128x3072x768", "gensor_table5/T3",
    "common/gemv_4096x4096", "common/gemv_1000x2048", "common/avg_16x128x56_2s2p0", "common/avg_16x288x35_3s1p1",
)  # fmt: skip
"""Smaller operators for two cores, with batch 1 if there is a choice."""


def stand_in(names: tuple[str, ...], limit: int | None = None) -> dict[str, list[Operator]]:
    """The operators by class, at most `limit` of each."""
    found: dict[str, list[Operator]] = {}
    for op in operators.resolve(names):
        found.setdefault(op.name, []).append(op)
    return {name: ops[:limit] for name, ops in found.items()}
