"""The transfer matrix as a page and as a heat map."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.texts import interval_text, p_text, page, table
from experiments.sheets.cells import percent_interval
from experiments.sheets.sheet import Sheet
from experiments.studies.heat_map import HeatMap

LEAST = 1.0
"""Per cent below which a colour is no paler."""
WHITE_ABOVE = 13.0
"""Per cent above which numbers are written in white."""


def markdown(summary: dict[str, Any], figures: list[str]) -> str:
    """The summary as a page."""
    columns, hardware = summary["columns"], summary["hardware"]
    head = ("trained on", *(f"tested on {name}" for name in hardware))
    lines = [
        "# Policies between models of GPUs", "",
        f"Policy `{summary['policy']}`, {summary['round']}, space {summary['space']}, {summary['part']} part, "
        f"{len(summary['seeds'])} training seeds. The hardware is a model: nothing ran on a GPU. Fingerprint "
        f"{summary['fingerprint']}. {summary['date']}.", "",
        "Mean regret, log(T / T*) to the optimum certified for the tested hardware, over operators and seeds; in brackets 95 % "
        "intervals of a bootstrap over operators and training seeds. Bold: trained there. Searches, and policies from "
        "elsewhere, are stopped at the evaluations of the policy trained there; a policy that ends earlier, there.", "",
        *table(head, [(name, *(_cell(columns[on], name, on) for on in hardware)) for name in hardware]), "",
        *table(("search", *head[1:]), [
            (name, *(_cell(columns[on], name, on) for on in hardware)) for name in summary["strategies"]
        ]), "",
        "## What transfer costs", "",
        "Mean regret less that of the policy trained there, same operator and seed; p of a sign-flip test on the operators' "
        "means, adjusted by Holm within a column.", "",
        *table(head, [
            (name, *(_over(columns[on], name) for on in hardware)) for name in [*hardware, *summary["strategies"]]
        ]), "",
        "## Costs and operators", "",
        *table(("hardware", "operators", "evaluations, trained there", "training a seed"), [
            (
                name, str(len(columns[name]["operators"])), f"{columns[name]['evaluations'][name]:,.0f}",
                f"{statistics.mean(summary['training_s'][name]):.0f} s",
            )
            for name in hardware
        ]), "",
    ]  # fmt: skip
    if summary["left_out"]:
        lines += [f"Left out: {len(summary['left_out'])} elementwise maps, whose optima are not certified.", ""]
    for name, unknown in summary["unknown"].items():
        lines += [f"Left out on {name}: `{text}`: {why}\n" for text, why in unknown.items()]
    return page(lines, figures)


def _cell(column: dict[str, Any], name: str, tested_on: str) -> str:
    """A mean regret with its interval."""
    text = interval_text(column["regret"][name], 1)
    return f"**{text}**" if name == tested_on else text


def _over(column: dict[str, Any], name: str) -> str:
    """A difference to the policy trained there."""
    line = column["over_native"].get(name)
    return "" if line is None else f"{interval_text(line, 1, sign=True)}, p {p_text(line['p_holm'])}"


def sheet(summary: dict[str, Any]) -> Sheet:
    """Mean regrets: policies by what they were trained on, then searches; a column for every tested hardware."""
    columns, hardware = summary["columns"], summary["hardware"]
    names = [*hardware, *summary["strategies"]]
    rows = [
        (f"trained on {name}" if name in hardware else name, *(percent_interval(columns[on]["regret"][name]) for on in hardware))
        for name in names
    ]
    return Sheet.of("mean regret on the model of", ("policy or search", *hardware), rows)


def draw(summary: dict[str, Any], path: Path) -> str:
    """Mean regrets: trained on in rows, tested on in columns; returns the file's name."""
    hardware, rows = summary["hardware"], [*summary["hardware"], *summary["strategies"]]
    values = 100 * np.array([[summary["columns"][on]["regret"][name]["mean"] for on in hardware] for name in rows])
    return HeatMap(
        values, [f"trained on {name}" for name in hardware] + summary["strategies"], hardware,
        f"mean regret, {summary['round']}", "tested on the model of", frozenset((i, i) for i in range(len(hardware))),
        (len(hardware),), (1.6 + 0.95 * len(hardware), 1.3 + 0.5 * len(rows)), LEAST, WHITE_ABOVE, " %",
    ).draw(path)  # fmt: skip
