"""Predictions of the analytic GPU model compared with published rates of libraries.

The model predicts the time of the schedule that is nearest to the library's kernel. No constant of the model comes from these
figures. The code generator supports all these schedules.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from experiments.tables.table import Stamp, Table
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import make_row
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_LEVELS

WITHIN = 0.2
"""Largest relative error of a prediction that is accepted."""

SGEMM = "cublasSgemm on H100 SXM, waynehacking8/blackwell-tensorcore-kernels results/bench.csv and bench_sm90a.csv"
HGEMM = "cuBLAS with float16 operands and float32 sums on H100 SXM, the same files"
AMPERE = "cuBLAS float16 on A100, gau-nernst/learn-cuda 02b"


@dataclass(frozen=True)
class Kernel:
    """A library's kernel as a schedule: tiles m x n x k of a block and of a worker (thread or warp), and knobs by name."""

    name: str
    block: tuple[int, int, int]
    worker: tuple[int, int, int]
    knobs: tuple[tuple[str, int], ...]

    def row(self) -> np.ndarray:
        """Return the schedule's row for a matrix product, with a tile for every level."""
        inner, outer = ([1] * 3 + list(tile) + [1] * (MAX_AXES - 6) for tile in (self.worker, self.block))
        return make_row([inner] + [outer] * (MAX_LEVELS - 1), [1] * MAX_AXES, 1, dict(self.knobs))


SIMT = Kernel(
    "256x128x8, 4 stages, thread tile 16x8", (256, 128, 8), (16, 8, 1),
    (("vector", 4), ("unroll", 8), ("stages", 4), ("register_buffer", 2), ("shared_layout", 1), ("warp_tile", 1),
     ("lane_map", 1), ("raster", 8)),
)  # fmt: skip
WGMMA = Kernel(
    "128x256x64, wgmma 64x256, 4 stages, persistent, cluster of 2", (128, 256, 64), (64, 256, 64),
    (("stages", 4), ("raster", 8), ("persistent", 1), ("cluster", 2), ("tensor_core", 2)),
)  # fmt: skip
MMA = Kernel(
    "256x128x32, mma.sync, warp tile 64x64, 3 stages", (256, 128, 32), (64, 64, 32),
    (("stages", 3), ("register_buffer", 2), ("shared_layout", 2), ("raster", 8), ("tensor_core", 1)),
)  # fmt: skip


@dataclass(frozen=True)
class Published:
    """A published rate: a product of n x n x n on a GPU, with the lowest and highest rate of the library in TFLOP/s."""

    hardware: str
    dtype: str
    n: int
    low: float
    high: float
    kernel: Kernel
    source: str


PUBLISHED = (
    Published("h100", "float32", 4096, 45.5, 45.7, SIMT, SGEMM),
    Published("h100", "float32", 8192, 47.3, 50.5, SIMT, SGEMM),
    Published("h100", "float16", 2048, 541.0, 555.0, WGMMA, HGEMM),
    Published("h100", "float16", 4096, 726.0, 733.0, WGMMA, HGEMM),
    Published("h100", "float16", 8192, 750.0, 762.0, WGMMA, HGEMM),
    Published("a100", "float16", 4096, 244.0, 244.0, MMA, AMPERE),
    Published("a100", "float16", 8192, 262.0, 262.0, MMA, AMPERE),
)


def predicted(case: Published) -> float:
    """Return the seconds that the model predicts for the library's kernel."""
    graph = ConstructionGraph(f'gemm(m={case.n}, n={case.n}, k={case.n}, dtype="{case.dtype}")', case.hardware, "extended")
    return float(graph.latencies(case.kernel.row()[None])[0])


def ratio(case: Published) -> float:
    """Return predicted time over published time, that at the middle of the range of published rates."""
    return predicted(case) / (2.0 * case.n**3 / (0.5e12 * (case.low + case.high)))


def make(config: DictConfig, _folder: Path) -> list[Table]:
    """Make the table of all published rates; `limit` is the largest number of rows."""
    rows = []
    for case in PUBLISHED[: config.limit]:
        rate = 2.0 * case.n**3 / predicted(case) / 1e12
        published = f"{case.low:g}" if case.low == case.high else f"{case.low:g}-{case.high:g}"
        rows.append((f"{case.hardware} {case.dtype} {case.n}^3", case.kernel.name, rate, published, ratio(case)))
    columns = ("product", "schedule", "predicted TFLOP/s", "published TFLOP/s", "predicted / published time")
    notes = (
        "Predicted: latency of the analytic model for the schedule nearest to the library's kernel; nothing was timed.",
        *(f"Published: {source}." for source in dict.fromkeys(case.source for case in PUBLISHED[: config.limit])),
        "No constant of the model is fitted to these figures; `docs/design.md` says where each comes from.",
    )
    return [Table("The GPU model compared with published rates of libraries", Stamp.PREDICTED, columns, tuple(rows), notes)]
