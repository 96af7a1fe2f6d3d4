"""Table like Gensor's figure 10 (arXiv 2502.11407): performance over optimisation time, for operators instead of a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from experiments.tables.gensor import published
from experiments.tables.gensor.figures import draw_curves
from experiments.tables.gensor.published import HOST, NAMED, RTX_4090, stand_in
from experiments.tables.gensor.searches import (
    ANSOR,
    LIVE,
    LIVE_TRIALS,
    MODEL,
    Contender,
    Ended,
    Found,
    Searches,
    speeds_of,
    tiers_of,
    trials_of,
)  # fmt: skip
from experiments.tables.table import Cell, Table
from gensor_gym.operators.types import Operator

OPERATORS = {MODEL: (RTX_4090, 2), LIVE: (HOST, 2)}
"""Tier (model or measurements) -> (operators, number per class unless `limit` is set)."""
NEAR = 0.9
"""Share of the best speed of any strategy from which on a search counts as nearly done."""
POINTS = 160
"""Number of points of a drawn curve."""
SLOWEST = "Ansor"


def make(config: DictConfig, folder: Path) -> list[Table]:
    """Make a table and a figure for each tier (model or measurements)."""
    tables = []
    for tier in tiers_of(config):
        names, some = OPERATORS[tier]
        ops = [op for ops in stand_in(names, config.limit or some).values() for op in ops]
        found = _contenders(tier, trials_of(config, tier))
        tables.append(_table(config, Searches(config, folder, tier, alone=True), ops, found, folder))
    return tables


def _contenders(tier: str, trials: int) -> list[Contender]:
    few = min(trials, LIVE_TRIALS)  # with the model the ranking is exact, and more trials add nothing
    constructing = [Contender(name, few) for name in ("markov", "markov_ext")]
    return [*constructing, Contender("roller", min(10, trials)), Contender(ANSOR[tier], trials), Contender("random", trials)]


def _table(config: DictConfig, searches: Searches, ops: list[Operator], found: list[Contender], folder: Path) -> Table:
    ended = searches.run(ops, found)
    best = {op: min(s for (at, *_), of in ended.items() if at == op for s in _best(of.rows)[1]) for op in ops}
    finals = _finals(searches, ops, found)
    rows = [_row(one, [(of, best[op]) for (op, name, _), of in ended.items() if name == one.name], finals) for one in found]
    slowest = published.FIGURE_10[SLOWEST][1]
    rows += [
        (f"{name}, published (a network)", first, None, None, None, rate / slowest, total)
        for name, (first, rate, total) in published.FIGURE_10.items()
    ]
    columns = (
        "strategy", "seconds to the first kernel", "speed then", f"seconds to {NEAR:.0%} of the best", "searches that got there",
        "speed in the end", "seconds in all",
    )  # fmt: skip
    pictures = (_draw(searches, ended, best, found, folder),) if config.figures else ()
    title = f"After Gensor's figure 10: performance over optimisation time, {searches.device}"
    notes = (*_disagreement(rows, found), *_conditions(searches, len(ops)), NAMED)
    return Table(title, searches.stamp(), columns, tuple(rows), notes, pictures)


def _finals(searches: Searches, ops: list[Operator], found: list[Contender]) -> dict[str, float]:
    """Time the winners of all strategies together; return each strategy's speed relative to the best, in geometric mean."""
    speeds = speeds_of(searches, ops, found, found[0].name)
    logs = np.log(np.stack([speeds.seconds[one.name] for one in found]))
    relative = np.exp(np.nanmean(np.nanmin(logs, axis=(0, 2), keepdims=True) - logs, axis=(1, 2)))
    return dict(zip((one.name for one in found), relative.tolist(), strict=True))


def _row(one: Contender, searched: list[tuple[Found, float]], finals: dict[str, float]) -> tuple[Cell, ...]:
    """Return a strategy's row: medians over its searches, and its speed in the end.

    `searched` pairs each search with the best seconds of any strategy on its operator.
    """
    first, then, near, total = [], [], [], []
    for found, best in searched:
        at, seconds = _best(found.rows)
        total.append(found.outcome.elapsed_s)
        if not len(at):
            continue
        first.append(at[0])
        then.append(best / seconds[0])
        near += at[seconds <= best / NEAR][:1].tolist()
    name = f"{one.name} ({one.trials} trials)"
    middle = float(np.median(near)) if near else None
    return (name, _median(first), _median(then), middle, f"{len(near)} of {len(searched)}", finals[one.name], _median(total))


def _median(values: list[float]) -> float | None:
    return float(np.median(values)) if values else None


def _best(rows: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Return (seconds since the start, fastest seconds so far) of the trials, from the first that succeeded on."""
    at = np.array([row["elapsed_s"] for row in rows], dtype=float)
    seconds = np.array([np.inf if row["seconds"] is None else row["seconds"] for row in rows])
    best = np.minimum.accumulate(seconds) if len(seconds) else seconds
    return at[np.isfinite(best)], best[np.isfinite(best)]


def _disagreement(rows: list[tuple[Cell, ...]], found: list[Contender]) -> tuple[str, ...]:
    """Return a sentence on how much later and how much faster ansor is than markov, here and in the paper."""
    by_name = {one.name: row for one, row in zip(found, rows, strict=False)}
    markov, ansor = by_name["markov"], next(row for name, row in by_name.items() if name.startswith("ansor"))
    if not all(isinstance(cell, float) for row in (markov, ansor) for cell in (row[1], row[5], row[6])):
        return ()
    (first, rate, total), (late, fast, end) = published.FIGURE_10["Gensor"], published.FIGURE_10["Ansor"]
    return (
        f"{ansor[0]} over {markov[0]}: time to the first kernel {_over(ansor[1], markov[1])}, in all "
        f"{_over(ansor[6], markov[6])}, speed in the end {_over(ansor[5], markov[5])}; Ansor over Gensor in the paper: "
        f"{late / first:.2f}, {end / total:.2f}, {fast / rate:.2f}. What may be why: trials here are counted in tens, there "
        "probably in thousands; and these are operators, not a network.",
    )


def _over(above: Cell, below: Cell) -> str:
    return f"{float(above or 0.0) / float(below or 1.0):.2f}"


def _draw(
    searches: Searches, ended: Ended, best: dict[Operator, float], found: list[Contender], folder: Path
) -> str:
    """Draw the speed of the best kernel over time next to the published curve; write the figure and return its file name.

    The speed is the arithmetic mean over searches; a search without a kernel has speed 0.
    """
    ends = [of.outcome.elapsed_s for of in ended.values()]
    firsts = [at[0] for of in ended.values() if len(at := _best(of.rows)[0])]
    grid = np.geomspace(max(min(firsts), 1e-4) * 0.7, max(ends) * 1.2, POINTS)
    curves = {}
    for one in found:
        mine = [(op, *_best(of.rows)) for (op, name, _), of in ended.items() if name == one.name]
        share = np.mean([_share(grid, at, best[op] / seconds) for op, at, seconds in mine], axis=0)
        curves[one.name] = grid[share > 0], share[share > 0]
    slowest = published.FIGURE_10[SLOWEST][1]
    theirs = {
        name: (np.array([*(at for at, _ in points), 3000.0]), np.array([*(r for _, r in points), points[-1][1]]) / slowest)
        for name, points in published.FIGURE_10_CURVES.items()
    }
    panels = [(f"ours, {searches.device}", curves), ("published, a network on RTX 4090", theirs)]
    path = folder / f"gensor_over_time_{searches.hardware.name}.png"
    return draw_curves(panels, ("optimisation time", "speed over the best found"), path, ("seconds", "share"))


def _share(grid: np.ndarray, at: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return a search's best speed so far at every time of `grid`; 0 before the first time in `at`."""
    places = np.searchsorted(at, grid, side="right")
    return np.concatenate([[0.0], shares])[places]


def _conditions(searches: Searches, count: int) -> tuple[str, ...]:
    theirs = (
        f"Published: figure 10 of {published.SOURCE} ResNet-34 at batch 128, whole network, speeds over Ansor's in the end; "
        "Ansor's number of trials is not stated. A network has some twenty different operators, so its seconds are those of as "
        "many searches: compare the order of the strategies and the ratios of their times, not seconds."
    )
    what = (
        "a search's own time, the model's answers taking next to none, so the measuring strategies look faster than they are"
        if searches.tier == MODEL
        else "wall time with generating, compiling, checking and timing; of kernels known before, the time that they took then"
    )
    return (
        f"Ours: {searches.device}, {count} operators, seeds {searches.seeds}, medians over searches; seconds are {what}. "
        f"Speed: over "
        "the fastest that any strategy found on the operator, in the figure the arithmetic mean over searches; in the end, the "
        "geometric mean of the winners'"
        + ("." if searches.tier == MODEL else ", timed again together (during a search the fastest of several is optimistic)."),
        theirs,
    )
