"""Results of a kernel benchmark over all shapes: geometric means and minima of the speed over torch's, by class and in all."""

from __future__ import annotations

from collections import Counter
from typing import Any

from experiments.statistics.statistics import geometric_mean
from gensor_gym import operators
from gensor_gym.operators.types import Operator

Row = dict[str, Any]


def class_of(op: Operator) -> str:
    """Class in which an operator is counted; 1x1 convolutions, which are matrix products, have their own class."""
    if op.name == "conv2d":
        sizes: dict[str, Any] = dict(op.arguments)
        return "conv2d 1x1" if sizes["r"] == sizes["s"] == 1 else "conv2d"
    return {"batched_gemm": "gemm", "avg_pool2d": "pooling", "max_pool2d": "pooling", "depthwise_conv2d": "depthwise"}.get(
        op.name, op.name
    )


APART = ("depthwise", "pooling")
"""Classes in which torch is far from the roofline: means are also given without them, and for them alone."""


def overall(timed: list[Row]) -> dict[str, object]:
    """The line over all shapes."""
    called = [{"operator": row["operator"], **row["called"]} for row in timed]
    line = {**_summary(timed), "called": _summary(called)}
    if all("over_float32" in row for row in timed):
        line |= {"over_float32": _mean(timed, "over_float32"), "least_over_float32": _least(timed, "over_float32")}
    return line


def _summary(timed: list[Row]) -> dict[str, object]:
    """Speed-ups over torch: mean, least, means by class, without the classes of APART and of these alone, and verdicts."""
    classes: dict[str, list[Row]] = {}
    for row in timed:
        classes.setdefault(class_of(operators.parse(row["operator"])), []).append(row)
    others = [row for kind, rows in classes.items() if kind not in APART for row in rows]
    apart = [row for kind, rows in classes.items() if kind in APART for row in rows]
    return {
        "over_torch": _mean(timed, "over_torch"),
        "least_over_torch": _least(timed, "over_torch"),
        "by_class": {kind: _mean(rows, "over_torch") for kind, rows in classes.items()},
        "without_depthwise_and_pooling": _mean(others, "over_torch"),
        "depthwise_and_pooling": _mean(apart, "over_torch"),
        "verdicts": Counter(row["verdict"] for row in timed),
    }


def _mean(rows: list[Row], name: str) -> float | None:
    """Geometric mean of the medians of a ratio; None without rows."""
    return geometric_mean(row[name]["median"] for row in rows)


def _least(rows: list[Row], name: str) -> float:
    """The smallest median of a ratio."""
    return min(row[name]["median"] for row in rows)
