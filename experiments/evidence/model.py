"""The model beside what the device recorded: ranking, regret of the first choices, scale; before and after the fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.benches.fitting.ranks import spearman
from experiments.evidence.facts import Facts
from experiments.evidence.figures import model as model_figure
from experiments.evidence.predictions import Told, fit_of, told
from experiments.evidence.tables import RECORDED
from experiments.studies.search.report import table
from experiments.tables.recorded import Recorded, regret_of_random
from experiments.tables.sim_to_real import FASTEST, TOP, Score, score

PAGE = "model.md"


def write(folder: Path, facts: Facts) -> list[str]:
    """Write the page and its figures; returns their names."""
    them = told(folder, facts)
    figures = [model_figure.times(them, folder / "model_times.png"), model_figure.regret(them, folder / "model_regret.png")]
    (folder / PAGE).write_text(markdown(them, fit_of(folder, facts), facts, figures), encoding="utf-8")
    return [PAGE, *figures]


def markdown(them: list[Told], fit: dict[str, Any], facts: Facts, figures: list[str]) -> str:
    """The page."""
    before = [score(one.recorded, one.before) for one in them]
    lines = [
        "# The model beside the device", "", facts.head, "", facts.source(RECORDED), "",
        f"The model is that of commit {facts.commit} (fingerprint of text {facts.fingerprint}), which no measurement on any "
        "GPU had calibrated. Nothing here says how it does on operators of the test part.", "",
        "## Before any fit", "", *_ranking(them, before), "",
        f"Rank correlation in the mean over the {len(them)} operators: {_mean([s.spearman for s in before])}; in the fastest "
        f"fifth of each {_mean([s.spearman_fastest for s in before])}. Behind: time of the best of the model's first ten over "
        "the best of all recorded, less one; by chance is what ten programs drawn at random leave (the geometric mean). "
        f"Halves: rank correlation of the medians of every other sample in the fastest fifth (one in {FASTEST}), which noise "
        "leaves to any model. Operators that were recorded in part are a random draw of their space, and their best is that of "
        "the draw.", "",
        "## After a fit", "", *_fitted(fit), "",
        f"Eight coefficients of the model's terms were fitted to {fit['schedules']:,} of these programs, at most 250 an "
        "operator. Left out: the operator's own programs were not in the fit. The fit is not shipped in the model.", "",
        *(f"![{name}]({name})\n" for name in figures),
    ]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"


def _ranking(them: list[Told], before: list[Score]) -> list[str]:
    """A line for each operator."""
    head = (
        "operator", "part", "programs", "rank correlation", "in the fastest fifth", "halves", "first behind", "first ten behind",
        "ten by chance", "measured / model",
    )  # fmt: skip
    rows = []
    for one, found in zip(them, before, strict=True):
        chance = float(regret_of_random(one.recorded)[min(10, len(one.before)) - 1])
        whole = "" if one.recorded.complete else " (part)"
        rows.append((
            f"`{one.operator}`", one.part, f"{len(one.before):,}{whole}", f"{found.spearman:.2f}",
            f"{found.spearman_fastest:.2f}", f"{_halves(one.recorded):.2f}", _behind(found.regrets[0]),
            _behind(found.regrets[TOP.index(10)]), _behind(chance), f"{found.ratio[0]:.2f}",
        ))  # fmt: skip
    return table(head, rows)


def _fitted(fit: dict[str, Any]) -> list[str]:
    """A line for each operator of the fit, and their means."""
    names = ("before", "after", "left_out")
    ranks = (f"rank correlation {name.replace('_', ' ')}" for name in names)
    head = ("operator", "programs", *ranks, "first ten behind left out")
    lines = fit["by_operator"]
    rows = [
        (
            f"`{op}`", str(line["schedules"]), *(f"{line[name]['spearman']:.2f}" for name in names),
            _behind(line["left_out"]["top_10_regret"]),
        )
        for op, line in lines.items()
    ]  # fmt: skip
    means = [_mean([line[name]["spearman"] for line in lines.values()]) for name in names]
    return table(head, [*rows, ("mean", str(fit["schedules"]), *means, "")])


def _halves(recorded: Recorded) -> float:
    """Rank correlation of medians of even with those of odd samples, of the fastest programs."""
    fast = np.argsort(recorded.seconds, kind="stable")[: max(3, len(recorded.measured) // FASTEST)]
    samples = [recorded.measured[i].samples for i in fast]
    return spearman(np.array([np.median(s[::2]) for s in samples]), np.array([np.median(s[1::2]) for s in samples]))


def _behind(regret: float) -> str:
    """A regret as what the time is more."""
    return f"{np.expm1(regret):.0%}"


def _mean(values: list[float]) -> str:
    """Mean of those that are defined."""
    return f"{np.nanmean(values):.2f}"
