"""The table of a frozen suite: interquartile means of regrets with stratified bootstrap intervals, and who is apart from whom.

By `experiments.statistics`, whose definitions are those of Agarwal et al. (NeurIPS 2021), the paper of the package `rliable`;
that package is not needed. Its intervals draw seeds alone, within each task; these draw tasks as well, and are wider.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.board.entries import verified
from experiments.common.results import write_text
from experiments.common.settings import ROOT
from experiments.common.texts import table
from experiments.statistics import statistics
from gensor_gym.suites import Suite, Track, get

PAGE = ROOT / "docs" / "suite.md"
BEGIN, END = "<!-- built by experiments.leaderboard --frozen v1 -->", "<!-- end of what is built -->"
CAP = float(np.log(100))
"""Regret of what is worse than a hundred times the best, or no program at all."""
MODEL = ("greedy", "model_descent")
"""Searches of the model without anything learned: where they are as good as the best, learning has nothing to earn."""
WITHIN = 0.05
Scores = Mapping[str, np.ndarray]


def tiers(scores: Scores) -> list[list[str]]:
    """Agents in groups, the best first: one belongs to the group of the best left unless intervals tell it from that one.

    Told apart: the interval of the difference of interquartile means is above zero, tasks drawn as well as seeds.
    """
    left = sorted(scores, key=lambda name: (float(statistics.interquartile_mean(scores[name])), name))
    found: list[list[str]] = []
    while left:
        best = left[0]
        same = [name for name in left if name == best or not _apart(scores[name], scores[best])]
        found.append(same)
        left = [name for name in left if name not in same]
    return found


def _apart(worse: np.ndarray, better: np.ndarray) -> bool:
    """See `tiers`."""

    def difference(one: np.ndarray, other: np.ndarray) -> float:
        return float(statistics.interquartile_mean(one) - statistics.interquartile_mean(other))

    low, _ = statistics.bootstrap(difference, worse, better, resamples=1000)
    return bool(low > 0)


def lines(suite: Suite, entries: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> Iterator[str]:
    """All tables as Markdown."""
    for name, track in suite.tracks.items():
        own = entries.get(name, {})
        if not own:
            continue
        scores = {agent: scores_of(track, rows) for agent, rows in own.items()}
        yield from _of_track(track, scores, own)


def scores_of(track: Track, rows: list[dict[str, Any]]) -> np.ndarray:
    """Regrets [tasks, seeds], capped."""
    return np.minimum(track.scores([row | {"regret": float.fromhex(row["regret"])} for row in rows]), CAP)


def _of_track(track: Track, scores: Scores, entries: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Heading, table, what follows."""
    ranks = {agent: place for place, names in enumerate(tiers(scores), start=1) for agent in names}
    best = next(iter(ranks))
    about = f"{track.about[0].upper()}{track.about[1:]}. {len(track.tasks)} tasks, {len(track.seeds)} seeds."
    yield from (f"### {track.name}", "", about, "")
    groups = list(dict.fromkeys(task.group for task in track.tasks))
    head = ("tier", "agent", "IQM regret", "interval", "mean", f"within {WITHIN:.0%}", "chance to beat the first", *groups,
            "trials", "evaluations", "seconds")  # fmt: skip
    rows = sorted(scores, key=lambda agent: (ranks[agent], float(statistics.interquartile_mean(scores[agent]))))
    yield from table(tuple(head), [_row(track, agent, ranks[agent], scores, best, groups, entries[agent]) for agent in rows])
    yield ""
    yield f"Intervals tell {max(ranks.values())} tiers apart (aim: four)."
    least = float(statistics.interquartile_mean(scores[best]))
    near = [a for a in MODEL if a in scores and statistics.interquartile_mean(scores[a]) <= least + np.log1p(WITHIN)]
    if near and track.model:
        yield f"{' and '.join(f'`{name}`' for name in near)} within {WITHIN:.0%} of the best: here learning has nothing to earn."
    yield ""


def _row(
    track: Track, agent: str, tier: int, scores: Scores, best: str, groups: list[str], rows: list[dict[str, Any]]
) -> tuple[str, ...]:
    """One agent's cells."""
    own = scores[agent]
    low, high = statistics.bootstrap(statistics.interquartile_mean, own, resamples=1000)
    profile = statistics.performance_profile(own, np.array([np.log1p(WITHIN)]))[0]
    chance = statistics.probability_of_improvement(own, scores[best])
    at = [[task.group == group for task in track.tasks] for group in groups]
    spent = [np.mean([row[name] for row in rows]) for name in ("trials", "evaluations", "elapsed_s")]
    iqm = float(statistics.interquartile_mean(own))
    return (
        str(tier), agent, percent(iqm), f"[{percent(low)}, {percent(high)}]", percent(own.mean()), f"{profile:.0%}",
        f"{chance:.2f}",
        *(percent(float(statistics.interquartile_mean(own[mask]))) for mask in at),
        f"{spent[0]:.1f}", f"{spent[1]:,.0f}", f"{spent[2]:.2f}",
    )  # fmt: skip


def percent(regret: float | np.ndarray) -> str:
    """A regret as percent more than the best."""
    return f"{100 * np.expm1(float(regret)):.1f} %"


def build(version: str, folder: Path, page: Path, check: bool = False) -> None:
    """Verify all entries and write the tables into the page.

    ValueError for an entry that is not true; with `check` nothing is written, and ValueError where another page would be.
    """
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no lines {BEGIN!r} and {END!r}")
    built = "\n".join([before + BEGIN, "", *lines(get(version), verified(version, folder)), END + after])
    if check and built != text:
        raise ValueError(f"{page} is not what its entries say: python -m experiments.leaderboard --frozen {version} builds it")
    if not check:
        write_text(page, built)
