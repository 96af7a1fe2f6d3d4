"""Transfer between recorded GPUs as a page, and as figures: matrices by kernel, and regret over trials."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter

from experiments.common import style
from experiments.common.texts import interval_text, p_text, table
from experiments.sheets.cells import percent_interval
from experiments.sheets.sheet import Sheet
from experiments.studies.heat_map import HeatMap
from experiments.studies.transfer_recorded.plan import BEST_OF, FROM_BEST, MEMORISED, OTHERS, POLICY_OF

LEAST = 0.1
"""Per cent below which a colour is no paler."""
WHITE_ABOVE = 5.0
"""Per cent above which numbers are written in white."""


def markdown(summary: dict[str, Any], figures: list[str]) -> str:
    """The summary as a page."""
    at = [f"{count} trials" for count in summary["checkpoints"]]
    groups = [("all", "all kernels"), *((kernel, kernel) for kernel in summary["kernels"])]
    lines = [
        "# Policies between real GPUs", "",
        f"Complete recorded spaces of {len(summary['kernels'])} kernels, each measured on several GPUs; "
        f"{len(summary['seeds'])} training seeds, {summary['repeats']} searches with each. Replicated: measured by others, "
        f"read from files. {summary['date']}.", "",
        "Regret is log(T / T*) of the best configuration so far, T* being the best recorded for the tested GPU. A trial is a "
        "configuration that was not met before in the search, failed ones included. Means over tasks (a kernel on a GPU), seeds "
        "and searches, in brackets 95 % intervals of a bootstrap over tasks and training seeds. Tasks of one kernel, or one GPU, "
        "have much in common: they are fewer than they seem, and intervals and p values rather too sure.", "",
        _memorised(summary), "",
    ]  # fmt: skip
    for group, title in groups:
        rows = summary["regret"][group]
        tasks = sum(map(len, summary["kernels"].values())) if group == "all" else len(summary["kernels"][group])
        lines += [f"## {title.capitalize()}, {tasks} tasks", "", *table(("search", *at), [
            (name, *(interval_text(line, 1) for line in rows[name])) for name in summary["roles"]
        ]), ""]  # fmt: skip
    others = (("over_reference", summary["reference"]), ("over_memorised", MEMORISED), ("over_order", BEST_OF + OTHERS))
    for key, other in others:
        lines += [
            f"## Less {other}", "",
            "Paired by task and seed; p of a sign-flip test on the tasks' means, adjusted by Holm within a column.", "",
            *table(("search", *at), [
                (name, *(f"{interval_text(line, 1, sign=True)}, p {p_text(line['p_holm'])}" for line in found))
                for name, found in summary[key].items()
            ]), "",
        ]  # fmt: skip
    for kernel in summary["kernels"]:
        lines += _matrix(summary, kernel)
    lines += _spaces(summary)
    seconds = summary["training_s"]
    lines += [
        f"{len(seconds)} policies, {summary['training_steps']:,} steps each: {statistics.mean(seconds):.0f} s in the mean on one "
        f"thread ({min(seconds):.0f} to {max(seconds):.0f} s).", "",
    ]  # fmt: skip
    return "\n".join([*lines, *(f"![{name}]({name})\n" for name in figures)])


def _memorised(summary: dict[str, Any]) -> str:
    """What the memorisation reference is."""
    sizes = [about["configurations"] for devices in summary["spaces"].values() for about in devices.values()]
    return (
        f"The {MEMORISED} is a policy trained on the recording that it is tested on ({summary['training_steps']:,} steps on "
        f"{min(sizes):,} to {max(sizes):,} configurations): train on test. It says what this learner remembers, nothing of an "
        "unseen device; looking the fastest configuration up has regret 0. In the matrices it is bold."
    )


def _rows(summary: dict[str, Any], kernel: str) -> list[str]:
    """Searches of a matrix from top to bottom."""
    devices = summary["kernels"][kernel]
    policies = [POLICY_OF + name for name in (*devices, OTHERS)]
    return [*policies, FROM_BEST, *(BEST_OF + name for name in (*devices, OTHERS)), *summary["strategies"]]


def _values(summary: dict[str, Any], kernel: str) -> np.ndarray:
    """Per cent of regret at the trials shown, float64 [rows, devices]; nan where a device would be its own other."""
    place, cells = summary["checkpoints"].index(summary["shown"]), summary["matrix"][kernel]
    found = [[cells[on].get(name) for on in summary["kernels"][kernel]] for name in _rows(summary, kernel)]
    return 100 * np.array([[np.nan if one is None else one[place] for one in row] for row in found])


def _matrix(summary: dict[str, Any], kernel: str) -> list[str]:
    """A kernel's matrix in words; bold is the memorisation reference."""
    devices, rows, values = summary["kernels"][kernel], _rows(summary, kernel), _values(summary, kernel)

    def cell(i: int, j: int) -> str:
        text = "" if np.isnan(values[i, j]) else f"{values[i, j]:.1f} %"
        return f"**{text}**" if rows[i] == POLICY_OF + devices[j] else text

    return [
        f"## {kernel.capitalize()}: matrix after {summary['shown']} trials", "",
        *table(("search", *(f"tested on {name}" for name in devices)), [
            (name, *(cell(i, j) for j in range(len(devices)))) for i, name in enumerate(rows)
        ]), "",
    ]  # fmt: skip


def _spaces(summary: dict[str, Any]) -> list[str]:
    """What was recorded."""
    rows = [
        (kernel, about["device"], str(about["configurations"]), str(about["ran"]), str(about["within_5"]),
         f"{about['slowest']:.1f}")
        for kernel, devices in summary["spaces"].items() for about in devices.values()
    ]  # fmt: skip
    head = ("kernel", "device", "configurations", "ran well", "within 5 % of the best", "slowest over best")
    return ["## Spaces", "", *table(head, rows), ""]


def sheet(summary: dict[str, Any]) -> Sheet:
    """Mean regrets over all tasks."""
    rows = ((name, *map(percent_interval, found)) for name, found in summary["regret"]["all"].items())
    return Sheet.of("mean regret, all tasks", ("search", *(f"{count} trials" for count in summary["checkpoints"])), rows)


def draw(summary: dict[str, Any], folder: Path) -> list[str]:
    """Matrices and curves; returns the files' names."""
    found = [_draw_matrix(summary, kernel, folder / f"matrix_{kernel}.png") for kernel in summary["kernels"]]
    return [_draw_curves(summary, folder / "curves.png"), *found]


def _draw_matrix(summary: dict[str, Any], kernel: str, path: Path) -> str:
    """Searches in rows, tested GPUs in columns."""
    devices, rows = summary["kernels"][kernel], _rows(summary, kernel)
    return HeatMap(
        _values(summary, kernel), [name.replace("_", " ") for name in rows], [name.replace("_", " ") for name in devices],
        f"{kernel}: mean regret after {summary['shown']} trials, %", "tested on",
        frozenset((rows.index(POLICY_OF + device), j) for j, device in enumerate(devices)),
        (len(devices) + 2, 2 * len(devices) + 3), (2.6 + 0.8 * len(devices), 1.1 + 0.3 * len(rows)), LEAST, WHITE_ABOVE,
    ).draw(path)  # fmt: skip


def _draw_curves(summary: dict[str, Any], path: Path) -> str:
    """Mean regret over trials by kernel."""
    kernels, counts = list(summary["kernels"]), summary["checkpoints"]
    looks = style.look(summary["roles"])
    with plt.rc_context(style.RC):
        figure, all_axes = plt.subplots(1, len(kernels), figsize=(0.4 + 3.1 * len(kernels), 3.2), squeeze=False)
        figure.subplots_adjust(wspace=0.35)
        for axes, kernel in zip(all_axes[0], kernels, strict=True):
            for name in summary["roles"]:
                colour, marker = looks[name]
                means = [max(LEAST, 100 * line["mean"]) for line in summary["regret"][kernel][name]]
                axes.plot(counts, means, color=colour, marker=marker, markersize=4, label=name.replace("_", " "))
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(counts, [str(count) for count in counts])
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
            axes.set_title(kernel)
            axes.set_xlabel("trials")
        all_axes[0][0].set_ylabel(f"mean regret (below {LEAST:g} % drawn there)")
        handles, labels = all_axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=3)
        return style.save(figure, path)
