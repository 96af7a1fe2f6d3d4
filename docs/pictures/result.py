"""One result of each machine that kernels ran on: generated kernels beside torch, on an Intel Xeon and on an H100."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agents.runs.journal import read_rows
from experiments.common import style
from experiments.evidence.later_run import OURS
from gensor_gym import operators

ROOT = Path(__file__).resolve().parents[2]
XEON = ROOT / "results/host/kernels_intel.jsonl"
H100 = ROOT / "results/h100/raw/2026-11-23/operators.jsonl.gz"
KINDS = {
    "products": ("gemm", "batched_gemm", "gemv"),
    "convolutions": ("conv2d",),
    "depthwise, pooling": ("depthwise_conv2d", "avg_pool2d", "max_pool2d"),
    "sums, maps": ("reduce_sum", "elementwise"),
}
LIMITS = (0.24, 80.0)


def on_xeon() -> dict[str, float]:
    """Torch's time over ours, both called from Python, by operator."""
    return {row["operator"]: row["called"]["over_torch"]["median"] for row in read_rows(XEON) if row["kind"] == "shape"}


def on_h100() -> dict[str, float]:
    """The faster library's time over ours, medians of interleaved rounds, by operator."""
    found = {}
    for row in {row["key"]: row for row in read_rows(H100) if "samples" in row}.values():
        seconds = {name: float(np.median(samples)) for name, samples in row["samples"].items()}
        ours = seconds.pop(OURS)
        found[row["operator"]] = min(seconds.values()) / ours
    return found


def draw(path: Path) -> None:
    """Write the picture for light and for dark pages."""
    with plt.rc_context(style.RC):
        style.save(_figure(), path, "both")


def _figure() -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.3), layout="constrained", sharey=True)
    _panel(left, on_xeon(), "Intel Xeon, two cores, called from Python")
    _panel(right, on_h100(), "NVIDIA H100, best of 16 to 48 candidates")
    left.set_ylabel("times torch's speed")
    handles, labels = left.get_legend_handles_labels()
    left.legend(handles, labels, loc="upper left", fontsize=8)
    return figure


def _panel(axes: Axes, ratios: Mapping[str, float], title: str) -> None:
    """A dot for each operator, slowest first, beside the line at which both are level."""
    order = sorted(ratios, key=lambda name: ratios[name])
    classes = [operators.parse(name).name for name in order]
    marks = zip("o^sD", style.PALETTE[:4], strict=True)
    for (kind, names), (marker, colour) in zip(KINDS.items(), marks, strict=True):
        at = [i for i, name in enumerate(classes) if name in names]
        axes.plot(at, [ratios[order[i]] for i in at], marker, color=colour, label=kind, markersize=5)
    axes.axhline(1.0, color=style.INK, linewidth=1.1)
    mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
    axes.axhline(mean, color=style.GREY, linewidth=1.1, linestyle=(0, (4, 3)))
    axes.text(len(order) - 0.5, 0.3, f"dashed: geometric mean {mean:.2f}", ha="right", fontsize=8, color=style.GREY)
    axes.set_yscale("log")
    axes.set(ylim=LIMITS, title=title, xlabel=f"{len(order)} operators, slowest first")
    axes.set_yticks([0.25, 0.5, 1, 2, 5, 10, 20, 50], ["0.25", "0.5", "1", "2", "5", "10", "20", "50"])
    axes.set_xticks([])
    axes.minorticks_off()
