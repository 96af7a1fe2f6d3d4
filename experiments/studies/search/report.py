"""A study in words: a Markdown page, and its first table at the end of a run."""

from __future__ import annotations

from typing import Any

from experiments.common.texts import interval_text, p_text, page, table
from experiments.sheets.cells import Cell, Given, count, percent, percent_interval, seconds
from experiments.sheets.sheet import Sheet
from experiments.studies.stamps import Stamp

CHANCE = "drawing at random"


def markdown(summary: dict[str, Any], figures: list[str]) -> str:
    """The summary as a page."""
    tasks, seeds = summary["tasks"], summary["seeds"]
    lines = [
        "# Strategies compared", "",
        f"Hardware {summary['hardware']} ({summary['device']}), space {summary['space']}, {len(tasks)} tasks, "
        f"{len(seeds)} seeds, {summary['trials']} trials a search. {_source(summary)} "
        f"Fingerprint {summary['fingerprint']}. {summary['date']}.", "",
        f"Regret is log(T / T*) of the best kernel so far, T* being {_best(summary)}. Interquartile means "
        "over tasks and seeds, in brackets 95 % intervals of a bootstrap that draws tasks, and "
        "seeds within tasks. A search that ends early keeps its last kernel. "
        + (f"{CHANCE.capitalize()}: uniform draws of kernels without replacement, exactly. " if summary["chance"] else "")
        + "Trials, model evaluations, and overhead (wall time of a search outside of measuring) "
        "are means over the searches; training was done beforehand.", "",
        *sheet(summary).markdown(), "",
    ]  # fmt: skip
    others = (line.get("over", {}) for line in summary["strategies"].values())
    for name in dict.fromkeys(name for over in others for name in over):
        lines += _differences(summary, name)
    lines += _hypotheses(summary)
    lines += ["## Tasks", "", *table(("operator", "part of the split", "kernels"), [
        (task["operator"], task["part"], str(task["kernels"])) for task in tasks
    ])]  # fmt: skip
    lines += [f"\nLeft out: {name}: {why}" for name, why in summary["broken"].items()]
    return page(lines, figures)


def _source(summary: dict[str, Any]) -> str:
    """Where times come from."""
    recorded = summary["stamp"] == Stamp.REPLICATED
    return "Replicated: measured, read from tables." if recorded else "Predicted: latencies of the model; nothing was timed."


def _best(summary: dict[str, Any]) -> str:
    """What regrets are against."""
    known = "the best of the task; zero for kernels that cannot be told from it"
    return known if summary["stamp"] == Stamp.REPLICATED else "the fastest that any search of this study found"


def sheet(summary: dict[str, Any]) -> Sheet:
    """The table of regrets."""
    broken = (f"left out: {name}: {why}" for name, why in summary["broken"].items())
    return Sheet.of("regret after so many trials", _regret_head(summary), _regret_rows(summary), broken)


def _regret_head(summary: dict[str, Any]) -> tuple[str, ...]:
    """Columns of the first table."""
    return ("strategy", *(f"regret after {k}" for k in summary["checkpoints"]), "trials", "evaluations", "overhead", "training")


def _regret_rows(summary: dict[str, Any]) -> list[tuple[Given, ...]]:
    """Strategies, best at the last checkpoint first, then the expectation of random draws."""
    lines = sorted(summary["strategies"].items(), key=lambda item: item[1]["regret"][-1]["mean"])
    rows: list[tuple[Given, ...]] = [
        (
            name, *map(percent_interval, line["regret"]), Cell(f"{line['trials']:.0f}", (line["trials"],)),
            count(line["evaluations"]), seconds(line["overhead_s"]), seconds(line["training_s"]),
        )
        for name, line in lines
    ]  # fmt: skip
    chance: tuple[Given, ...] = (CHANCE, *map(percent, summary["chance"] or ()), "-", "-", "-", "-")
    return [*rows, chance] if summary["chance"] else rows


def _differences(summary: dict[str, Any], other: str) -> list[str]:
    """Paired differences to the zero line or the reference."""
    rows = []

    def better(value: dict[str, float]) -> str:
        return "" if other == "chance" else f", {value['improves']:.0%}"

    for name, line in summary["strategies"].items():
        if (found := line.get("over", {}).get(other)) is not None:
            cells = (f"{interval_text(v, 1, sign=True)}, p {p_text(v['p_holm'])}" + better(v) for v in found)
            rows.append((name, *cells))
    if not rows:
        return []
    title = CHANCE if other == "chance" else other
    least = max(line["over"][other][0]["p_least"] for line in summary["strategies"].values() if other in line.get("over", {}))
    return [
        f"## Against {title}", "",
        "Mean difference of regret with the same task and seed (negative is better), its interval; p of a sign-flip test on "
        "the tasks' means (of a single task, on its seeds), adjusted by Holm over the strategies"
        + (", against the expectation." if other == "chance" else "; the probability that a search of this strategy is ahead.")
        + f" With so few tasks and so many strategies no p is below {p_text(least)}.",
        "", *table(("strategy", *(f"after {k}" for k in summary["checkpoints"])), rows), "",
    ]  # fmt: skip


def _hypotheses(summary: dict[str, Any]) -> list[str]:
    """What was expected, and what came."""
    if not summary["hypotheses"]:
        return []
    rows = [
        (name, said.get("beside", summary["reference"]), f"{said['direction']}: {said['because']}", *said["found"])
        for name, said in summary["hypotheses"].items()
    ]
    head = ("variant", "beside", "expected", *(f"after {k}" for k in summary["checkpoints"]))
    return ["## Hypotheses", "", "Written down before the run.", "", *table(head, rows), ""]
