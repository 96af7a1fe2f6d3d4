"""Whole networks beside three libraries on every processor they were timed on: one thread, batch 1."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agents.runs.journal import read_rows
from experiments.common import style

HOST = Path(__file__).resolve().parents[2] / "results/host"
PROCESSORS = {
    "Intel Xeon (AVX-512)": "networks_intel_ahead.jsonl",
    "AMD EPYC, Zen 5 (AVX-512)": "networks_amd_one_thread.jsonl",
    "AMD EPYC, Zen 3 (AVX2)": "networks_zen3_one_thread.jsonl",
}
"""Title -> lines of `python -m experiments.bench suite=networks networks.threads=1`."""
NETWORKS = {"mobilenet_v2": "MobileNetV2", "resnet50": "ResNet-50", "bert": "BERT", "gpt2": "GPT-2"}
PEERS = {"eager": "torch eager", "inductor": "torch.compile", "onnxruntime": "ONNX Runtime"}
LIMITS = (0.6, 4.2)


def ratios(name: str) -> dict[str, dict[str, Mapping[str, float]]]:
    """Network -> peer -> how many times as fast ours is: median, low and high of 95 %."""
    rows: list[dict[str, Any]] = [row for row in read_rows(HOST / name) if "over" in row and row["threads"] == 1]
    return {row["network"]: row["over"] for row in rows if row["network"] in NETWORKS}


def draw(path: Path) -> None:
    """Write the picture for light and for dark pages."""
    with plt.rc_context(style.RC):
        style.save(_figure(), path, "both")


def _figure() -> Figure:
    figure, panels = plt.subplots(1, len(PROCESSORS), figsize=(9.6, 2.6), layout="constrained", sharex=True, sharey=True)
    for axes, (title, name) in zip(panels, PROCESSORS.items(), strict=True):
        _panel(axes, ratios(name), title)
    panels[0].invert_yaxis()
    panels[0].legend(*panels[0].get_legend_handles_labels(), loc="lower right", fontsize=8)
    figure.supxlabel("times as fast as", fontsize=9)
    return figure


def _panel(axes: Axes, found: Mapping[str, Mapping[str, Mapping[str, float]]], title: str) -> None:
    """A row for each network, a mark with its interval for each peer, beside the line at which both are level."""
    for place, (peer, label) in enumerate(PEERS.items()):
        for number, name in enumerate(NETWORKS):
            if name not in found:
                continue
            ratio, at = found[name][peer], number + 0.22 * (place - 1)
            axes.plot([ratio["low"], ratio["high"]], [at, at], color=style.PALETTE[place], linewidth=1.6)
            named = label if number == 0 else None
            axes.plot([ratio["median"]], [at], style.MARKERS[place], color=style.PALETTE[place], markersize=5, label=named)
    for number, name in enumerate(NETWORKS):
        if name not in found:
            axes.text(1.05, number, "not timed", va="center", fontsize=8, color=style.GREY)
    axes.axvline(1.0, color=style.INK, linewidth=1.1)
    axes.set_xscale("log")
    axes.set(title=title, xlim=LIMITS)
    axes.set_xticks([0.7, 1, 1.5, 2, 3, 4], ["0.7", "1", "1.5", "2", "3", "4"])
    axes.minorticks_off()
    axes.set_yticks(range(len(NETWORKS)), list(NETWORKS.values()))
