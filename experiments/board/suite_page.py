"""The leaderboard's page: a table for each track, results after given seconds and evaluations, and figures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from agents.runs.files import write_text
from agents.runs.settings import ROOT
from agents.runs.texts import table
from experiments.board.entries import verified
from experiments.board.suite_scores import (
    CAP,
    EVALUATIONS,
    SECONDS,
    WITHIN,
    Standing,
    interval,
    iqm,
    learned,
    scores_after,
    scores_of_first,
    standings,
)
from experiments.common import statistics
from gensor_gym.suites import Track, get
from gensor_gym.suites.session import WINDOWS

PAGE = ROOT / "results" / "suite" / "README.md"
BEGIN, END = "<!-- built by gensor leaderboard --frozen {version} -->", "<!-- end of what is built -->"
MODEL = ("greedy", "descents", "model_descent")
"""Agents that search on the model without learning. On a track where they reach the best agent, learning gains nothing."""


LEARNT = (0, WINDOWS // 2, WINDOWS - 3)
"""Indices of the points of a learning curve that the table shows: first, middle, and near the end.

Some agents use the last steps to show their result, so that the last points say nothing about learning.
"""


def lines(found: list[Standing], pictures: str | None) -> Iterator[str]:
    """Yield the lines of the page in Markdown: tables and links to figures for each track.

    `pictures` is the path of the figures' folder, or None to leave them out.
    """
    for standing in found:
        track = standing.track
        few = "" if _whole(standing) else ", fewer where the table says so"
        about = f"{track.about[0].upper()}{track.about[1:]}. {len(track.tasks)} tasks, {len(track.seeds)} seeds{few}."
        yield from (f"### {track.name}", "", about, "", *_ranking(standing), "", *_told(standing), "")
        if track.model and track.steps is None and track.tasks[0].backend == "analytic":
            yield from (*_spending(standing), "")
        if track.steps is not None:
            yield from (*_learning(standing), "")
        if pictures is not None:
            yield from (f"![Regrets and profiles of {track.name}]({pictures}/{track.name}.png)", "")
        if pictures is not None and track.steps is not None:
            yield from (f"![Learning curves of {track.name}]({pictures}/{track.name}_learning.png)", "")


def _whole(standing: Standing) -> bool:
    return {own.shape[1] for own in standing.scores.values()} == {len(standing.track.seeds)}


def _few(track: Track) -> bool:
    """Return whether a search on this track may try several given candidates; then the table has a column for the first trial."""
    return track.candidates and (track.budget.trials or math.inf) > 1


def _ranking(standing: Standing) -> list[str]:
    groups = list(dict.fromkeys(task.group for task in standing.track.tasks))
    of_groups = groups if len(groups) > 1 else []
    spent = "evaluations" if standing.track.steps is None else "steps"
    seeds = () if _whole(standing) else ("seeds",)
    first = ("after one trial",) if _few(standing.track) else ()
    head = ("tier", "agent", *seeds, *first, "IQM regret", "interval", "mean", f"within {WITHIN:.0%}", "chance to beat the first",
            *of_groups, "trials", spent, "processor seconds")  # fmt: skip
    ranks = {agent: place for place, names in enumerate(standing.tiers, start=1) for agent in names}
    return table(head, [_row(standing, agent, ranks[agent], of_groups) for agent in standing.agents])


def _row(standing: Standing, agent: str, tier: int, groups: list[str]) -> tuple[str, ...]:
    own, best = standing.scores[agent], standing.scores[standing.agents[0]]
    low, high = interval(own)
    profile = statistics.performance_profile(own, np.array([np.log1p(WITHIN)]))[0]
    at = [[task.group == group for task in standing.track.tasks] for group in groups]
    spent = [np.mean([row[name] for row in standing.lines[agent]]) for name in ("trials", "evaluations", "worked_s")]
    seeds = () if _whole(standing) else (str(own.shape[1]),)
    firsts = scores_of_first(standing.track, standing.lines[agent])
    first = (percent(iqm(firsts)),) if _few(standing.track) else ()
    return (
        str(tier), agent, *seeds, *first, percent(iqm(own)), f"[{percent(low)}, {percent(high)}]", percent(own.mean()),
        f"{profile:.0%}", f"{statistics.probability_of_improvement(own, best):.2f}", *(percent(iqm(own[mask])) for mask in at),
        f"{spent[0]:.1f}", f"{spent[1]:,.0f}", f"{spent[2]:.3f}",
    )  # fmt: skip


def _told(standing: Standing) -> Iterator[str]:
    named = "; ".join(", ".join(f"`{name}`" for name in names) for names in standing.tiers)
    yield f"Intervals tell {len(standing.tiers)} tiers apart (aim: four): {named}."
    least = iqm(standing.scores[standing.agents[0]])
    near = [name for name in MODEL if name in standing.scores and iqm(standing.scores[name]) <= least + np.log1p(WITHIN)]
    if near and standing.track.model:
        yield f"{' and '.join(f'`{name}`' for name in near)} within {WITHIN:.0%} of the best: here learning has nothing to earn."


def _spending(standing: Standing) -> list[str]:
    head = ("IQM regret after", *(f"{most:g} s" for most in SECONDS), *(f"{most:,} evaluations" for most in EVALUATIONS))
    rows = []
    for agent in standing.agents:
        of_agent = standing.lines[agent]
        spent = [("processor_s", SECONDS), ("asked", EVALUATIONS)]
        found = [scores_after(standing.track, of_agent, name, limits) for name, limits in spent]
        rows.append((agent, *(percent(iqm(scores[..., k])) for scores in found for k in range(scores.shape[-1]))))
    return table(head, rows)


def _learning(standing: Standing) -> list[str]:
    rows, steps = [], ["", "", ""]
    for agent in standing.agents:
        if (curves := learned(standing, agent)) is not None:
            some = np.nan_to_num(np.minimum(curves[..., 1:], CAP), nan=CAP)
            means = statistics.interquartile_mean(some, axis=0)
            rows.append((agent, *(percent(means[at, k]) for k in (0, 1) for at in LEARNT)))
            steps = [f"{curves[0, at, 0]:,.0f}" for at in LEARNT]
    times = [f"{what}, {when}" for what in ("episodes until", "best met until") for when in steps]
    return table(("IQM over searches, by steps", *times), rows)


def percent(regret: float | np.ndarray) -> str:
    """Return a regret as text, in percent above the best time; `none` if it is at least `CAP`, as if no program was found."""
    return f"{100 * np.expm1(float(regret)):.1f} %" if regret < CAP else "none"


def beside(version: str, folder: Path, shipped: Path) -> Iterator[str]:
    """Verify the entries in a folder and yield tables of their tracks in which they are ranked among the shipped entries.

    Raise ValueError for an invalid entry.
    """
    own = verified(version, folder)
    others = verified(version, shipped, own)
    suite = get(version)
    yield from lines(standings(suite, {name: {**others.get(name, {}), **agents} for name, agents in own.items()}), None)


def build(version: str, folder: Path, page: Path, check: bool = False) -> None:
    """Verify all entries of a suite, write the tables into the page, and draw its figures next to the entries.

    With `check`, write nothing, and raise ValueError if the page would change. Also raise ValueError for an invalid entry.
    """
    from experiments.board.suite_figures import draw

    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN.format(version=version))
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no lines {BEGIN.format(version=version)!r} and {END!r}")
    found = standings(get(version), verified(version, folder))
    built = "\n".join([before + begin, "", *lines(found, version), END + after])
    if check and built != text:
        raise ValueError(f"{page} is not what its entries say: python -m experiments leaderboard --frozen {version} builds it")
    if not check:
        write_text(page, built)
        draw(found, folder / version)
