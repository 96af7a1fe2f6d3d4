"""What policies that see the machine came to on machines held out, as a page."""

from __future__ import annotations

from typing import Any

from experiments.common.texts import interval_text, p_text, page, seconds_text, table
from experiments.sheets.cells import percent_interval
from experiments.sheets.sheet import Sheet


def markdown(summary: dict[str, Any], figures: list[str]) -> str:
    """The summary as a page."""
    lines = [
        "# Policies on machines they have not seen", "",
        f"Models of {', '.join(summary['machines'])}, space {summary['space']}, {len(summary['operators'])} operators each, of "
        f"the test part of split {summary['split']}; {len(summary['seeds'])} seed. Nothing was timed but the searches. Regret is "
        "log(T / T*), T* being the best that any search of this study finds: optima are not certified there, so that what is "
        "said is a lower bound. Interquartile means over tasks (and seeds), in brackets 95 % intervals of a bootstrap. "
        f"Seconds are processor time of one thread of {summary['processor']}, loading and compiling left out, training as well. "
        f"Fingerprint {summary['fingerprint']}. {summary['date']}.", "",
    ]  # fmt: skip
    for name, cost in summary["training"].items():
        seconds = ", ".join(f"{value:.0f} s" for value in cost["seconds"])
        lines += [f"`{name}`: {cost['steps']:,} programs in {seconds} of processor time, near {', '.join(cost['near'])}.", ""]
    for part, scores in summary["scores"].items():
        lines += [f"## {'All machines' if part == 'all' else part}", "", *_scores(summary, scores), ""]
    for policy, over in summary["over"].items():
        lines += [
            f"## `{policy}` less each search", "",
            "Mean difference over the same tasks and seeds (negative: the policy is better), and p of a sign-flip test on the "
            "tasks' means, adjusted by Holm.", "", *_over(summary, over), "",
        ]  # fmt: skip
    lines += ["## Operators", "", *(f"- `{text}`" for text in summary["operators"]), ""]
    return page(lines, figures)


def _head(summary: dict[str, Any]) -> tuple[str, ...]:
    """Of a table."""
    return "search", *map(seconds_text, summary["seconds"]), *(f"{count} evaluations" for count in summary["evaluations"])


def _scores(summary: dict[str, Any], scores: dict[str, Any]) -> list[str]:
    """Regrets of every search."""
    values = {name: (*of, *scores["evaluations"][name]) for name, of in scores["seconds"].items()}
    rows = [(name, *(interval_text(value, 1) for value in of)) for name, of in values.items()]
    return table(_head(summary), rows)


def _over(summary: dict[str, Any], over: dict[str, Any]) -> list[str]:
    """Differences, the other way round: `paired.against` has the others less ours."""
    rows = []
    for name, of in over["seconds"].items():
        cells = []
        for value in (*of, *over["evaluations"][name]):
            turned = {"mean": -value["mean"], "low": -value["high"], "high": -value["low"]}
            cells.append(f"{interval_text(turned, 1, sign=True)}, p {p_text(value['p_holm'])}")
        rows.append((name, *cells))
    return table(_head(summary), rows)


def sheet(summary: dict[str, Any]) -> Sheet:
    """Regrets by seconds over all machines."""
    rows = [[name, *map(percent_interval, of)] for name, of in summary["scores"]["all"]["seconds"].items()]
    return Sheet.of("IQM regret on machines held out", ("search", *map(seconds_text, summary["seconds"])), rows)
