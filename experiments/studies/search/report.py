"""The page of a study of searches, and its main table."""

from __future__ import annotations

from typing import Any

from agents.runs.sheets.cells import Cell, Given, count, percent, percent_interval, seconds
from agents.runs.sheets.sheet import Sheet
from agents.runs.texts import p_text, page, table
from experiments.studies.page import difference
from experiments.studies.stamps import Stamp
from gensor_gym.measure.stats.intervals import LEVEL

CHANCE = "drawing at random"
SOURCES = {
    Stamp.REPLICATED: (
        "Replicated: measured, read from tables.", "the best of the task; zero for kernels that cannot be told from it"
    ),
    Stamp.PREDICTED: (
        "Predicted: latencies of the model; nothing was timed.", "the fastest that any search of this study found"
    ),
}  # fmt: skip
"""Stamp -> (source of the times, reference of the regrets), in words."""


def markdown(summary: dict[str, Any], figures: list[str]) -> str:
    """Markdown text of the page."""
    tasks, seeds, (source, best) = summary["tasks"], summary["seeds"], SOURCES[summary["stamp"]]
    chance = f"{CHANCE.capitalize()}: uniform draws of kernels without replacement, exactly. " if summary["chance"] else ""
    after = [f"after {k}" for k in summary["checkpoints"]]
    lines = [
        "# Strategies compared", "",
        f"Hardware {summary['hardware']} ({summary['device']}), space {summary['space']}, {len(tasks)} tasks, "
        f"{len(seeds)} seeds, {summary['trials']} trials a search. {source} "
        f"Fingerprint {summary['fingerprint']}. {summary['date']}.", "",
        f"Regret is log(T / T*) of the best kernel so far, T* being {best}. Interquartile means "
        f"over tasks and seeds, in brackets {LEVEL} intervals of a bootstrap that draws tasks, and "
        f"seeds within tasks. A search that ends early keeps its last kernel. {chance}"
        "Trials, model evaluations, and overhead (wall time of a search outside of measuring) "
        "are means over the searches; training was done beforehand.", "",
        *sheet(summary).markdown(), "",
    ]  # fmt: skip
    others = (line.get("over", {}) for line in summary["strategies"].values())
    for name in dict.fromkeys(name for over in others for name in over):
        lines += _differences(summary, name, after)
    if summary["hypotheses"]:
        rows = [
            (name, said.get("beside", summary["reference"]), f"{said['direction']}: {said['because']}", *said["found"])
            for name, said in summary["hypotheses"].items()
        ]
        head = ("variant", "beside", "expected", *after)
        lines += ["## Hypotheses", "", "Written down before the run.", "", *table(head, rows), ""]
    lines += ["## Tasks", "", *table(("operator", "part of the split", "kernels"), [
        (task["operator"], task["part"], str(task["kernels"])) for task in tasks
    ])]  # fmt: skip
    lines += [f"\nLeft out: {name}: {why}" for name, why in summary["broken"].items()]
    return page(lines, figures)


def sheet(summary: dict[str, Any]) -> Sheet:
    """Table of the strategies' regrets, best at the last checkpoint first, then the expectation of random draws."""
    head = ("strategy", *(f"regret after {k}" for k in summary["checkpoints"]), "trials", "evaluations", "overhead", "training")
    lines = sorted(summary["strategies"].items(), key=lambda item: item[1]["regret"][-1]["mean"])
    rows: list[tuple[Given, ...]] = [
        (
            name, *map(percent_interval, line["regret"]), Cell(f"{line['trials']:.0f}", (line["trials"],)),
            count(line["evaluations"]), seconds(line["overhead_s"]), seconds(line["training_s"]),
        )
        for name, line in lines
    ]  # fmt: skip
    if summary["chance"]:
        rows.append((CHANCE, *map(percent, summary["chance"]), "-", "-", "-", "-"))
    broken = (f"left out: {name}: {why}" for name, why in summary["broken"].items())
    return Sheet.of("regret after so many trials", head, rows, broken)


def _differences(summary: dict[str, Any], other: str, after: list[str]) -> list[str]:
    """Lines of the section with paired differences from random draws or from a strategy."""
    lines = {name: line["over"][other] for name, line in summary["strategies"].items() if other in line.get("over", {})}
    chance = other == "chance"
    rows = [
        (name, *(difference(value) + ("" if chance else f", {value['improves']:.0%}") for value in of))
        for name, of in lines.items()
    ]
    least = max(of[0]["p_least"] for of in lines.values())
    return [
        f"## Against {CHANCE if chance else other}", "",
        "Mean difference of regret with the same task and seed (negative is better), its interval; p of a sign-flip test on "
        "the tasks' means (of a single task, on its seeds), adjusted by Holm over the strategies"
        + (", against the expectation." if chance else "; the probability that a search of this strategy is ahead.")
        + f" With so few tasks and so many strategies no p is below {p_text(least)}.",
        "", *table(("strategy", *after), rows), "",
    ]  # fmt: skip
