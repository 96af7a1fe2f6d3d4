"""Gensor (arXiv 2502.11407), figure 8: seconds to compile a square GEMM over its size, for all strategies.

On the model of an RTX 4090 only a search's own time counts, without compiling or timing kernels. On the present hardware all
compiling and timing counts, up to the largest size that is feasible. The claim tested on measurements is that `markov` is flat.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from agents.runs.jobs import DONE
from experiments.tables.gensor import published
from experiments.tables.gensor.figures import draw_curves
from experiments.tables.gensor.searches import LIVE, MODEL, Contender, Searches, tiers_of, trials_of
from experiments.tables.table import Cell, Table
from gensor_gym import operators
from gensor_gym.measure.stats.intervals import CONFIDENCE, LEVEL
from gensor_gym.operators.types import Operator

CONSTRUCTING = ("markov", "markov_ext", "roller", "welder", "greedy", "beam")
MEASURING = ("ansor", "autotvm", "random", "genetic", "tpe")
"""Strategies that search, with the model answering their trials."""
MEASURING_LIVE = ("ansor_small", "autotvm_small", "random", "genetic")
"""Strategies that search on hardware, with LIVE_TRIALS trials each: variants for few trials."""
TOP = 10
"""Number of programs that a constructing strategy measures in its further row; Roller's authors timed ten."""
LIVE_TRIALS = 16
LARGEST = 2**11
"""Largest size at which kernels are timed on a CPU. Twice the size takes eight times as long to verify and to time."""
FLAT = 0.1
"""Bound on the slope of log time over log size: a strategy is called flat if the slope's interval is within +- FLAT.

A slope of 0.1 means less than 1.15 times the time for four times the size. The value was written down before the run.
"""
RESAMPLES = 2000


def make(config: DictConfig, folder: Path) -> list[Table]:
    """Make a table for each tier (model or measurements): seconds by size and strategy, and their slope; draw the figure.

    `limit` is the largest number of sizes.
    """
    tables = []
    if MODEL in tiers_of(config):
        trials = trials_of(config, MODEL)
        found = [Contender(name, 1) for name in CONSTRUCTING] + [Contender(name, trials) for name in MEASURING]
        searches = Searches(config, folder, MODEL, alone=True)
        tables.append(_table(config, searches, found, published.SIZES[: config.limit], folder))
    if LIVE in tiers_of(config):
        trials = trials_of(config, LIVE, LIVE_TRIALS)
        searches = Searches(config, folder, LIVE)
        sizes = [n for n in published.SIZES if n <= LARGEST or searches.hardware.kind == "gpu"][: config.limit]
        found = [Contender(name, 1) for name in CONSTRUCTING]
        found += [Contender(f"{name}, {TOP} timed", TOP, of=name) for name in ("markov", "roller")]
        found += [Contender(name, trials) for name in MEASURING_LIVE]
        tables.append(_table(config, searches, found, sizes, folder))
    return tables


def _table(config: DictConfig, searches: Searches, found: list[Contender], sizes: Sequence[int], folder: Path) -> Table:
    ops = {n: operators.gemm(m=n, n=n, k=n) for n in sizes}
    ended = searches.run(ops.values(), found)

    def taken(name: str, field: str) -> np.ndarray:
        outcomes = [[ended[op, name, seed].outcome for seed in searches.seeds] for op in ops.values()]
        return np.array([[getattr(o, field) if o.status == DONE else np.nan for o in some] for some in outcomes])

    trials = {one.name: f"{one.trials} trial{'s' if one.trials > 1 else ''}" for one in found}
    seconds = {f"{name} ({many})": taken(name, "elapsed_s") for name, many in trials.items()}
    if searches.tier == LIVE:
        seconds |= {f"{name}: construction alone": taken(name, "construction_s") for name in ("markov", "roller")}
    slopes = {name: slope(sizes, times) for name, times in seconds.items()}
    rows: list[tuple[Cell, ...]] = [
        (name, *(float(np.median(of)) if np.isfinite(of).all() else None for of in times), _slope_text(slopes[name]))
        for name, times in seconds.items()
    ]
    for name, times in published.FIGURE_8.items():
        shown = [times[published.SIZES.index(n)] for n in sizes]
        rows.append((f"{name}, published", *shown, _slope_text(slope(sizes, np.array(shown)[:, None]))))
    pictures = (_draw(searches, ops, seconds, folder),) if config.figures else ()
    columns = ("seconds", *(f"{n}" for n in sizes), "slope")
    title = f"Gensor, figure 8: compile time over GEMM size, {searches.device}"
    notes = (*_verdict(searches, slopes), _seconds(seconds, sizes[-1]), *_conditions(searches))
    return Table(title, searches.stamp(), columns, tuple(rows), notes, pictures)


def slope(sizes: Sequence[int], seconds: np.ndarray) -> tuple[float, float, float]:
    """Return (slope, low, high) of log seconds over log size by least squares, with the 95 % bootstrap interval over points.

    `seconds` is float64 [sizes, seeds] with NaN for missing values. The result is NaN with fewer than three sizes.
    """
    good = np.isfinite(seconds)
    if good.any(axis=1).sum() < 3:
        return (float("nan"),) * 3
    x = np.repeat(np.log(np.asarray(sizes, dtype=float))[:, None], seconds.shape[1], axis=1)[good]
    y = np.log(seconds[good])
    rng = np.random.default_rng(0)
    drawn = [at for at in rng.integers(0, len(x), (RESAMPLES, len(x))) if len(np.unique(x[at])) > 1]
    low, high = np.quantile([_fit(x[at], y[at]) for at in drawn], (0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2))
    return _fit(x, y), float(low), float(high)


def _fit(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.dot(x - x.mean(), y) / np.dot(x - x.mean(), x))


def _slope_text(of: tuple[float, float, float]) -> str:
    return "-" if np.isnan(of[0]) else f"{of[0]:+.2f} [{of[1]:+.2f}, {of[2]:+.2f}]"


def _conditions(searches: Searches) -> tuple[str, ...]:
    theirs = (
        f"Published: figure 8 of {published.SOURCE} RTX 4090 with an i7-13700K; how many programs Gensor and Roller timed, and "
        "how many trials Ansor and AutoTVM had, is not stated.",
        f"Seconds are medians over seeds; slope: of log time over log size, least squares, in brackets a {LEVEL} bootstrap over "
        "the points (of published ones over the sizes). 0 is flat, 3 grows like the arithmetic.",
    )
    if searches.tier == MODEL:
        return (
            f"Ours: wall time of a search on the host with the model of an RTX 4090 answering, seeds {searches.seeds}, "
            "what a strategy loads and compiles once being loaded before. No kernel is compiled or timed, "
            "which is what the published times of the measuring strategies consist of: their rows say what their own thinking "
            "costs, no more.",
            *theirs,
        )
    return (
        f"Ours: wall time of a search on {searches.device}, float32, {searches.hardware.units} threads, seeds {searches.seeds}: "
        "construction or search, generating and compiling C, checking the result, timing. Where a kernel was known from an "
        "earlier search, the time that its trial took then is counted. With 1 trial a constructing strategy checks and times "
        "nothing but its first program; construction alone leaves that out too.",
        *theirs,
    )


def _verdict(searches: Searches, slopes: dict[str, tuple[float, float, float]]) -> tuple[str, ...]:
    """Return a sentence on whether markov's time is flat over the size; on the model, only its slopes."""
    theirs = _slope_text(slope(published.SIZES, np.array(published.FIGURE_8["Gensor"])[:, None]))
    said = [f"The slope of Gensor's published times, all sizes: {theirs}."]
    for name, (value, low, high) in slopes.items():
        if name.startswith(("markov (", "markov: ")):
            word = "" if searches.tier == MODEL else ": flat" if -FLAT < low and high < FLAT else ": not flat"
            said.append(f"{name}: {_slope_text((value, low, high))}{'' if np.isnan(value) else word}.")
    if searches.tier == LIVE:
        said.append(
            f"Before the run we defined flat as an interval within ±{FLAT}. The time to check and measure the one kernel grows "
            "with its arithmetic, whichever strategy built it. Construction alone excludes that time."
        )
    return (" ".join(said),)


def _seconds(seconds: dict[str, np.ndarray], n: int) -> str:
    ours = {name: float(np.nanmedian(times[-1])) for name, times in seconds.items()}
    at = published.SIZES.index(n)
    gensor, roller = published.FIGURE_8["Gensor"][at], published.FIGURE_8["Roller"][at]
    return (
        f"At n = {n}: markov {ours['markov (1 trial)']:.2g} s and roller {ours['roller (1 trial)']:.2g} s here, Gensor "
        f"{gensor:.2g} s and Roller {roller:.2g} s in the paper. What may be why: walks here are compiled and ask an analytic "
        "model, theirs are Python over TVM and may time candidates; the processors differ."
    )


def _draw(searches: Searches, ops: dict[int, Operator], seconds: dict[str, np.ndarray], folder: Path) -> str:
    sizes = np.array(list(ops))
    ours = {name: (sizes, np.median(times, axis=1)) for name, times in seconds.items()}
    theirs = {name: (np.array(published.SIZES), np.array(times)) for name, times in published.FIGURE_8.items()}
    panels = [(f"ours, {searches.device}", ours), ("published, RTX 4090", theirs)]
    path = folder / f"gensor_compile_time_{searches.hardware.name}.png"
    return draw_curves(panels, ("extent n of gemm n x n x n", "compile time"), path, ("sizes", "seconds"))
