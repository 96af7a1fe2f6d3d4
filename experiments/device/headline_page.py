"""The page of the headline comparison: `python -m experiments.headline_page FOLDER`.

FOLDER holds what stages `fine_tuning` and `headline` of `python3 -m experiments.gpu` left: headline.jsonl, fine_tuning/. Writes
headline.md and headline.png there: how the fine-tuned policy stands to the traverser, with intervals, or that they are
not significantly different.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from experiments.commands.refusal import exit_code
from experiments.common.journal import read_rows
from experiments.common.results import write_text
from experiments.common.style import RC, look, plain, save
from experiments.device.conclusions import conclusions
from experiments.device.report import contest_lines
from experiments.device.stages.headline import FILE as ROWS
from experiments.device.stages.headline import FOLDER, TUNED
from experiments.device.stages.standings import TORCH, standings
from experiments.device.work.fine_tuning_folder import summary
from gensor_gym import operators
from gensor_gym.foreign import read_json
from gensor_gym.measure.stats.intervals import LEVEL

PAGE, FIGURE = "headline.md", "headline.png"
BEFORE = "columns"
"""The policy that the fine-tuned one began as."""

COARSE = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
TICKS = sorted({*COARSE, 0.6, 0.8, 0.9, 1.1, 1.25})
"""Of the axis of ratios; the coarse ones where it spans more than a factor of ten."""
Ratios = dict[str, dict[str, list[float]]]
"""Strategy -> operator -> time over the first strategy's, one for each seed."""


def write(folder: Path) -> list[str]:
    """Write page and figure; their names. ValueError where there is no comparison in the folder."""
    rows = read_rows(folder / ROWS)
    if not rows:
        raise ValueError(f"no comparison in {folder / ROWS}: run stage headline first (python3 -m experiments.gpu)")
    run = str(rows[-1]["run"])
    rows = [row for row in rows if row["run"] == run]
    names = list(dict.fromkeys(row["strategy"] for row in rows if row["kind"] == "search"))
    first = "markov_ext" if "markov_ext" in names else names[0]
    names.sort(key=lambda name: name != first)
    found: dict[str, Any] = standings(folder / ROWS, run, names)
    ratios = ratios_of(rows, first)
    write_text(folder / PAGE, "\n".join(page(folder, run, rows, found, names, ratios)) + "\n")
    return [PAGE, *([draw(folder / FIGURE, ratios, found["over_first"], first)] if ratios else [])]


def ratios_of(rows: Sequence[Mapping[str, Any]], first: str) -> Ratios:
    """From interleaved rounds: the median over rounds of a winner's time over that of the first strategy with the same seed."""
    label = {row["label"]: (row["strategy"], row["seed"]) for row in rows if row["kind"] == "search"}
    cut = {(row["operator"], row["label"]) for row in rows if row["kind"] == "search" and row.get("cut")}
    found: Ratios = {}
    for row in rows:
        if row["kind"] != "together" or "samples" not in row:
            continue
        mine = {label[name]: np.array(values) for name, values in row["samples"].items()
                if name != TORCH and (row["operator"], name) not in cut}  # fmt: skip
        for (strategy, seed), values in mine.items():
            if strategy != first and (first, seed) in mine:
                ratio = float(np.median(values / mine[first, seed]))
                found.setdefault(strategy, {}).setdefault(row["operator"], []).append(ratio)
    return found


def page(
    folder: Path, run: str, rows: Sequence[Mapping[str, Any]], found: Mapping[str, Any], names: Sequence[str], ratios: Ratios
) -> list[str]:
    """Lines of the page."""
    first = names[0]
    trials = max((row.get("trials", 0) for row in rows if row["kind"] == "search"), default=0)
    seeds = len({row["seed"] for row in rows if row["kind"] == "search"})
    parts = sorted({operators.part_of(operators.parse(row["operator"])) for row in rows})
    lines = ["# A policy fine-tuned on kernel times, beside the traverser", ""]
    lines += [*(f"- {said}" for said in conclusions(found["over_first"])), *against_before(folder, run, names), ""]
    lines += [
        f"Operators of the part {' and '.join(parts)}, at most {trials} kernels for each search, {seeds} seeds of the search and "
        "one of the training. Winners were timed together in interleaved rounds, with torch. Ratios are geometric means over "
        f"operators, with {LEVEL} intervals of a bootstrap over operators: they say nothing about another training seed. A "
        "difference counts as found where the interval leaves out 1 and the sign-flip test over operators, after Holm, has p of "
        "at most 0.05.", "",
    ]  # fmt: skip
    if ratios:
        lines += [f"![time over that of {first}]({FIGURE})", ""]
    return [*lines, "## By operator", "", *contest_lines(dict(found)), "", "## The fine-tuning", "", *tuning(folder, run)]


def against_before(folder: Path, run: str, names: Sequence[str]) -> list[str]:
    """What fine-tuning changed: the policy beside the one that it began as."""
    if not {TUNED, BEFORE} <= set(names):
        return []
    found: Any = standings(folder / ROWS, run, sorted(names, key=lambda name: name != BEFORE))["over_first"]
    if not found or TUNED not in found["strategies"]:
        return []
    return [f"- {said}" for said in conclusions({**found, "strategies": {TUNED: found["strategies"][TUNED]}})]


def tuning(folder: Path, run: str) -> list[str]:
    """What was measured and learned from."""
    found = summary(folder / FOLDER, run)
    if not found["measured"]:
        return ["Nothing was measured."]
    device = read_json(folder / FOLDER / "card.json", finite=False)["fine_tuned"]["device"]
    statuses = ", ".join(f"{count} {name}" for name, count in sorted(found["statuses"].items()))
    rate = found["learned_from"] / found["learning_s"] if found["learning_s"] else 0.0
    lines = [
        f"`{found['from']}`, trained for the model of {found['trained_for']}, went on on {device} (`{found['hardware']}`): "
        f"{found['learned_from']} kernels of {found['operators']} operators of the train part in {found['learning_s']:.0f} s "
        f"({rate:.1f} a second; {statuses}).",
    ]  # fmt: skip
    if found["other_rules"]:
        lines += ["", f"It was trained under other rules or another model of {', '.join(found['other_rules'])}."]
    if eighths := found["over_fastest"]:
        said = ", ".join(f"{value:.2f}" for value in eighths)
        lines += ["", f"Time of the kernels measured over that of the fastest of their operator, eighth after eighth: {said}."]
    return lines


def draw(path: Path, ratios: Ratios, over_first: Mapping[str, Any], first: str) -> str:
    """A point for every operator and seed, a row for each operator; the mean over operators with its interval below."""
    with plt.rc_context(RC):
        return save(_figure(ratios, over_first, first), path)


def _figure(ratios: Ratios, over_first: Mapping[str, Any], first: str) -> Figure:
    """See `draw`."""
    names, tasks = list(ratios), list(dict.fromkeys(op for by_op in ratios.values() for op in by_op))
    looks = look([first, *names])
    figure, axes = plt.subplots(figsize=(8.0, 1.2 + 0.34 * (len(tasks) + 1)))
    for at, name in enumerate(names):
        colour, marker = looks[name]
        shift = 0.5 * ((at + 0.5) / len(names) - 0.5)
        points = [(value, row + shift) for row, op in enumerate(tasks) for value in ratios[name].get(op, [])]
        axes.plot(*zip(*points, strict=True), marker, color=colour, ms=4, alpha=0.8, lw=0, label=name)
        if line := over_first.get("strategies", {}).get(name):
            sides = [[line["ratio"] - line["low"]], [line["high"] - line["ratio"]]]
            axes.errorbar([line["ratio"]], [len(tasks) + shift], xerr=sides, fmt=marker, color=colour, ms=6, capsize=3)
    axes.axvline(1.0, color="#555555", lw=0.8)
    axes.set_xscale("log", base=2)
    axes.set_yticks(range(len(tasks) + 1), [*map(plain, tasks), f"geometric mean, {LEVEL}"])
    axes.set_ylim(len(tasks) + 0.6, -0.6)
    low, high = axes.get_xlim()
    axes.set_xticks([tick for tick in (TICKS if high <= 10.0 * low else COARSE) if low <= tick <= high])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.set_xlabel(f"time over that of {first} (left of 1: faster)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def main(arguments: list[str] | None = None) -> int:
    """Command line; the exit code."""
    return exit_code(lambda: _write_there(sys.argv[1:] if arguments is None else arguments))


def _write_there(arguments: list[str]) -> None:
    """Write the page of the folder that is named; ValueError where none is."""
    if len(arguments) != 1:
        raise ValueError("expected one argument, the folder of the results: python -m experiments.headline_page FOLDER")
    print(f"{', '.join(write(Path(arguments[0])))} in {arguments[0]}")
