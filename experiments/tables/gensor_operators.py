"""Gensor (arXiv 2502.11407): the GEMMs of Table V and the ablation of Table VI, on the model of an RTX 4090."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from agents import get_strategy
from experiments.summary import geometric_mean
from experiments.tables.table import Stamp, Table
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.operators.types import Operator

HARDWARE = "rtx4090"
TABLE_V = {"T1": (0.287, 0.303), "T2": (0.369, 0.387), "T3": (0.083, 0.091)}
"""Published milliseconds: Gensor, Ansor."""
TABLE_VI = {
    "conv2d": (22.76, 31.93, 34.54),
    "gemm": (37.6, 43.1, 45.2),
    "gemv": (0.23, 0.39, 0.47),
    "avg_pool2d": (0.07, 0.08, 0.08),
}
"""Published TFLOPS of one operator each: Roller, Gensor without virtual threads, Gensor."""
STAND_INS = {
    "conv2d": "roller/C*",
    "gemm": "roller/M*",
    "gemv": "common/gemv_*",
    "avg_pool2d": "roller/P*",
}
"""The paper's own shapes are not known to us."""


def make(config: DictConfig, _folder: Path) -> list[Table]:
    """Both tables; `limit` caps the stand-in shapes of each class."""
    return [_operators(), _ablation(config.limit)]


def _operators() -> Table:
    """Table V."""
    rows = []
    for name, (gensor, ansor) in TABLE_V.items():
        op = operators.resolve(f"gensor_table5/{name}")[0]
        ours, roller = (1e3 * predicted(op, strategy) for strategy in ("markov", "roller"))
        rows.append((str(op), ours, roller, gensor, ansor, ours / gensor, ansor / gensor))
    columns = (
        "operator", "markov, predicted ms", "roller, predicted ms", "Gensor, published ms", "Ansor, published ms",
        "predicted / published", "published Ansor / Gensor",
    )  # fmt: skip
    notes = (
        "Predicted: latency of the analytic model of an RTX 4090 for the best program that the strategy constructs; "
        "nothing was timed on that device. Published: measured by the authors, Table V of arXiv 2502.11407.",
        "The paper gives extents without naming their order; [M, K, N] is assumed, [M, N, K] cannot be excluded.",
    )
    return Table("Gensor, Table V: GEMM on an RTX 4090", Stamp.PREDICTED, columns, tuple(rows), notes)


def _ablation(limit: int | None) -> Table:
    """Table VI."""
    rows = []
    for name, (roller, without, gensor) in TABLE_VI.items():
        ops = [op for op in dict.fromkeys(operators.resolve(STAND_INS[name])) if op.name == name][:limit]
        tree = geometric_mean(predicted(op, "roller") / predicted(op, "markov") for op in ops)
        plain = geometric_mean(predicted(op, "markov", "gensor_no_vthread") / predicted(op, "markov") for op in ops)
        rows.append((f"{name} ({len(ops)} shapes)", tree, plain, gensor / roller, gensor / without))
    columns = (
        "class", "markov over roller, predicted", "markov over no vthread, predicted", "Gensor over Roller, published",
        "Gensor over no vthread, published",
    )  # fmt: skip
    notes = (
        "Predicted: geometric mean of ratios of model latencies over stand-in shapes (Roller's operators; for gemv "
        "common shapes), because the shapes of the paper's other operators are not published in a form we found. "
        "Published: one operator of each class, measured, Table VI of arXiv 2502.11407. Only the direction compares.",
    )
    return Table("Gensor, Table VI: what the graph and virtual threads add", Stamp.PREDICTED, columns, tuple(rows), notes)


def predicted(op: Operator, strategy: str, space: str | None = None) -> float:
    """Model latency in seconds of the best program that a strategy constructs, in its own space unless told."""
    made: Any = get_strategy(strategy, **({"space": space} if space else {}))
    graph = ConstructionGraph(op, HARDWARE, made.space)
    return float(min(made.construct(graph, np.random.default_rng(0)).latencies))
