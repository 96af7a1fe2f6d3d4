"""The page about the model's ranking: every operator, every class, and the aims with their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from agents.runs.texts import table
from experiments.evidence.ranking.measured import FITTED
from experiments.evidence.ranking.scores import FIRST, Scored
from experiments.statistics import FASTEST

JUDGED = 150
"""Least number of programs of a table that counts."""
COMMAND = "python -m experiments.evidence.ranking"


def markdown(title: str, recorded: Sequence[Scored], raced: Sequence[Scored], classes: Mapping[str, float],
             left: Mapping[str, float]) -> str:  # fmt: skip
    """The page as Markdown. `left` has rank correlations by operator after a fit without the operator's class, or is empty."""
    lines = [
        f"# {title}", "",
        f"Made by `{COMMAND}` from the raw files of [results/h100](../h100/README.md); nothing is timed. Behind: the best of the "
        f"model's first {FIRST} over the best of all, less one; first over best: the time of its first choice over the best. Of "
        "programs that the model puts alike the slowest counts as the first.", "",
        "## Aims", "", *table(("asked", "aim", "came out", ""), aims(recorded, raced, classes, left)), "",
        f"The mean and the least are over the {len(_judged(recorded))} tables of {JUDGED} programs and more.", "",
        "## Recorded tables", "", *_recorded(recorded, left), "",
        "## Measured over predicted, by class", "",
        *table(("class", "median"), [(name, f"{value:.2f}") for name, value in classes.items()]), "",
        "## Candidates raced with libraries", "", *_raced(raced),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def aims(recorded: Sequence[Scored], raced: Sequence[Scored], classes: Mapping[str, float],
         left: Mapping[str, float]) -> list[tuple[str, str, str, str]]:  # fmt: skip
    """(question, aim, result, whether it is met) of every aim."""
    them = _judged(recorded)
    ranks, fast = [one.ranks for one in them], float(np.mean([one.ranks_fastest for one in them]))
    ten = max(one.first_ten for one in them)
    off = max(classes.items(), key=lambda pair: abs(np.log(pair[1])))
    first = [one.first for one in raced if one.measured.part in FITTED]
    lines = [
        ("rank correlation, least", "0.85", f"{min(ranks):.2f}", min(ranks) >= 0.85),
        ("rank correlation, mean", "0.90", f"{np.mean(ranks):.2f}", np.mean(ranks) >= 0.9),
        (f"in the fastest of {FASTEST}, mean", "0.5", f"{fast:.2f}", fast >= 0.5),
        (f"first {FIRST} behind, most", "10 %", f"{100 * (ten - 1):.0f} %", ten <= 1.1),
        ("measured over predicted, class furthest off", "1.5", f"{off[1]:.2f} ({off[0]})", 1 / 1.5 <= off[1] <= 1.5),
        ("raced: first over best at most 1.3", f"10 of {len(first)}", str(sum(f <= 1.3 for f in first)),
         sum(f <= 1.3 for f in first) >= 10),
        ("raced: first over best, most", "2", f"{max(first):.2f}", max(first) <= 2.0),
    ]  # fmt: skip
    if left:
        least = min(left[one.measured.operator] for one in them if one.measured.operator in left)
        lines.append(("class left out of a fit: rank correlation, least", "0.75", f"{least:.2f}", least >= 0.75))
    return [(asked, aim, out, "met" if met else "missed") for asked, aim, out, met in lines]


def _judged(recorded: Sequence[Scored]) -> list[Scored]:
    """Tables that have enough programs and belong to operators outside the test part."""
    return [one for one in recorded if len(one.measured.seconds) >= JUDGED and one.measured.part in FITTED]


def _recorded(them: Sequence[Scored], left: Mapping[str, float]) -> list[str]:
    """Lines of the table of recorded operators."""
    head = ("operator", "part", "programs", "rank correlation", "in the fastest", "first over best", f"first {FIRST} behind",
            "measured / predicted", *(("class left out",) if left else ()))  # fmt: skip
    cells = []
    for one in them:
        rest = (f"{left[one.measured.operator]:.2f}" if one.measured.operator in left else "",) if left else ()
        cells.append((
            f"`{one.measured.operator}`", one.measured.part, str(len(one.measured.seconds)), f"{one.ranks:.2f}",
            f"{one.ranks_fastest:.2f}", f"{one.first:.2f}", f"{100 * (one.first_ten - 1):.0f} %", f"{one.scale:.2f}", *rest,
        ))  # fmt: skip
    return table(head, cells)


def _raced(them: Sequence[Scored]) -> list[str]:
    """Lines of the table of operators raced with libraries."""
    cells = [
        (f"`{one.measured.operator}`", one.measured.part, str(len(one.measured.seconds)), f"{one.first:.2f}", f"{one.scale:.2f}")
        for one in them
    ]
    return table(("operator", "part", "candidates", "first over best", "measured / predicted"), cells)
