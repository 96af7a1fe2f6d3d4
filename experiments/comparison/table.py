"""Tables of a comparison: a Markdown page, and what a run prints at its end."""

from __future__ import annotations

import math
from dataclasses import replace

from rich.console import Console

from agents.runs.sheets.cells import NOTHING, Cell, Given, count, factor, percent, seconds, spread
from agents.runs.sheets.sheet import Sheet
from agents.runs.texts import page, seconds_text, table
from experiments.comparison.winners import overall_sentence, sentence, winner
from gensor_gym.measure.stats.intervals import LEVEL
from gensor_gym.measure.stats.verdict import TOLERANCE

COLUMNS = ("strategy", "time", "over torch", "gap to best", "construction", "model calls", "trials", "training")
OVERALL = ("strategy", "timed", *COLUMNS[2:])
"""Columns of the table over all operators."""
BUSY = 0.25
"""Share of the processors in use by other programs above which the tables warn."""
GAP = (
    "Gap to best: the median of a winner's time over the best one's in the same round, so that a machine that slows down between "
    "rounds does not count; it may differ from the quotient of the medians shown"
)


def cells(row: dict) -> tuple[Given, ...]:
    """Return the table cells of one job (search), in the order of `COLUMNS`."""
    timed: tuple[Given, ...] = (row["status"] if row["status"] != "DONE" else "no kernel", "-", "-")
    if row["retimed"] is not None:
        timed = (spread(row["retimed"]), _over_torch(row), _gap(row["gap_to_best"]))
    statuses = ", ".join(f"{many} {name}" for name, many in sorted(row["statuses"].items(), key=lambda item: -item[1]))
    costs = (seconds(row["construction_s"] or None), count(row["evaluations"]), statuses or "0", seconds(row["training_s"]))
    return (row["label"], *timed, *costs)


def notes(summary: dict, operator: str) -> list[str]:
    """Return notes about an operator: why a strategy or torch has no time, and when times cannot be trusted."""
    rows = [row for row in summary["rows"] if row["operator"] == operator and row["error"]]
    facts = summary["operators"][operator]
    lines = [f"{row['label']}: {row['error']}" for row in rows]
    lines += [f"torch: {why}" for name, why in facts["dropped"].items() if name == "torch"]
    before, now = facts["torch_before"], facts["torch"]
    if before and now and (now["low"] > before["high"] or now["high"] < before["low"]):
        then, today = (f"{seconds_text(one['median'])} [{one['low']:.3g}, {one['high']:.3g} s]" for one in (before, now))
        lines.append(f"torch took {then} on {before['date'][:10]} and {today} now: do not compare times of these two runs")
    if facts["processes"] in (1, 2):
        lines.append(f"timed in {facts['processes']} of 3 processes: verdicts hold within this run, in another they may differ")
    if facts["busy"] > BUSY:
        lines.append(f"other programs used {facts['busy']:.0%} of the processors: these times and ratios mislead")
    return lines


def _over_torch(row: dict) -> Cell:
    """Return the cell of the speed-up over torch with the verdict; it has the interval on narrow screens, too."""
    found = factor(row["over_torch"])
    return found if row["verdict"] is None else replace(found.with_word(row["verdict"]), short=None)


def _gap(value: dict[str, float]) -> Cell:
    more = {name: value[name] - 1.0 for name in ("median", "low", "high")}
    text = "best" if abs(more["median"]) < 0.0005 else percent(more["median"], sign=True).text
    return Cell(text, (more["median"], more["low"], more["high"]))


def markdown(summary: dict, figures: list[str]) -> str:
    """Return the summary as a Markdown page."""
    nature = "latencies of the analytic model or a table; nothing was timed" if summary["model_only"] else "measured"
    lines = [
        "# Comparison of strategies", "", *([found, ""] if (found := overall_sentence(summary)) else []),
        f"Hardware {summary['hardware']} ({summary['device']}), backend {summary['backend']}: {nature}. "
        f"Fingerprint {summary['fingerprint']}. {summary['date']}.", "",
        f"Times are medians of interleaved rounds of all winners together, with {LEVEL} intervals by order statistics; "
        "ratios are medians of paired ratios, with intervals by block bootstrap. Where several processes timed, each begun "
        "anew, a number is the median of theirs, and its interval the hull of theirs. A kernel is the SAME as torch's if the "
        f"whole interval is within {100 * TOLERANCE:g} % of 1, FASTER or SLOWER if the interval excludes 1, else AMBIGUOUS. "
        "Torch ran in the same process with the same number of threads. " + GAP + ".", "",
    ]  # fmt: skip
    lines += [*overall(summary).markdown(), *_beside(summary["paired"])]
    for op, facts in summary["operators"].items():
        lines += ["", f"## {op}", ""]
        torch = f"torch {spread(facts['torch']).text}; " if facts["torch"] else ""
        best = winner(summary, op)
        lines += [sentence(summary, op), *([f"Its schedule: `{best['schedule']}`."] if best else []), ""]
        lines += [f"{torch}roofline {seconds_text(facts['roofline_s'])}.", "", *of_operator(summary, op).markdown()]
        lines += [f"\n{note}" for note in notes(summary, op)]
    return page(lines, figures)


def _beside(paired: dict | None) -> list[str]:
    if paired is None:
        return []
    head = ("strategy", f"time over {paired['reference']}'s", "p (Holm)", "ahead")
    rows = []
    for name, line in paired["strategies"].items():
        mean, low, high = (f"{math.exp(line[key]):.3f}" for key in ("mean", "low", "high"))
        rows.append((name, f"{mean} [{low}, {high}]", f"{line['p_holm']:.2g}", f"{line['improves']:.0%}"))
    return [
        "", f"Winners timed again, paired by task and seed ({paired['tasks']} tasks, {paired['seeds']} seeds): geometric mean of "
        f"the ratios, {LEVEL} interval of a bootstrap over tasks and seeds; p of a sign-flip test on tasks, adjusted by Holm (at "
        f"least {next(iter(paired['strategies'].values()))['p_least']:.2g} with so few tasks and so many strategies); the "
        "probability that a search of this strategy is ahead.", "", *table(head, rows),
    ]  # fmt: skip


def overall_cells(line: dict) -> tuple[Given, ...]:
    """Return the table cells of one strategy over all operators, in the order of `OVERALL`."""
    counts = ", ".join(f"{many} {name}" for name, many in line["verdicts"].items())
    ratio = line["over_torch"]
    over = Cell(f"{ratio:.2f}x" + (f" ({counts})" if counts else ""), (ratio,)) if ratio else NOTHING
    gap = percent(line["gap_to_best"] - 1, sign=True) if line["gap_to_best"] else NOTHING
    return (
        line["strategy"], f"{line['timed']}/{line['jobs']}", over, gap, seconds(line["construction_s"] or None),
        count(line["evaluations"]), Cell(str(line["trials"]), (line["trials"],)), seconds(line["training_s"]),
    )  # fmt: skip


def overall(summary: dict) -> Sheet:
    """Return the table over all operators, with a row for each strategy."""
    note = [] if summary["model_only"] else [GAP]
    return Sheet.of("all operators (geometric means)", OVERALL, map(overall_cells, summary["strategies"]), note)


def of_operator(summary: dict, op: str) -> Sheet:
    """Return the table of one operator, with a row for each search."""
    rows = [row for row in summary["rows"] if row["operator"] == op]
    torch = summary["operators"][op]["torch"]
    baseline = f"   torch {seconds_text(torch['median'])}" if torch else ""
    return Sheet.of(f"{op}{baseline}", COLUMNS, map(cells, rows), styles=map(_style, rows))


def of_all(summary: dict) -> Sheet:
    """Return the table of all searches, with columns for operator and seed, for the CSV file."""
    rows = [(row["operator"], str(row["seed"]), *cells(row)) for row in summary["rows"]]
    return Sheet.of("all searches", ("operator", "seed", *COLUMNS), rows)


def show(console: Console, summary: dict) -> None:
    """Print the tables at the end of a run."""
    for op in summary["operators"]:
        of_operator(summary, op).show(console)
        for note in notes(summary, op):
            console.print(f"  {note}", style="yellow", markup=False, soft_wrap=True)
    overall(summary).show(console)


def _style(row: dict) -> str:
    best = row["gap_to_best"] and row["gap_to_best"]["median"] < 1.0005
    return "bold green" if best else "dim" if row["retimed"] is None else ""
