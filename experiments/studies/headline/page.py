"""The page of the study: the answer first, then tables and figures, all from raw rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from experiments.common.style import RC, look, save
from experiments.statistics.statistics import bootstrap, geometric_mean, holm, performance_profile, sign_flip
from experiments.studies.headline.scores import FIRST, LEARNED, RANKS, REFERENCE, Timed, read
from experiments.studies.search.report import table
from gensor_gym import operators

MARGIN = 1.10
"""Ratio below which the policy is not inferior."""
RESAMPLES = 10_000
MOST = 8
"""Operators listed on each side."""
UNKNOWN = "nan"


@dataclass(frozen=True)
class Line:
    """A comparison: ratio of times in the geometric mean, below 1 the first is faster; its interval and p value."""

    name: str
    operators: int
    ratio: float
    low: float
    high: float
    p: float
    p_holm: float = math.nan

    @property
    def cells(self) -> tuple[str, ...]:
        """Of a table."""
        holm_cell = "" if math.isnan(self.p_holm) else _p(self.p_holm)
        return (self.name, str(self.operators), f"{self.ratio:.3f}", f"{self.low:.3f} to {self.high:.3f}", _p(self.p), holm_cell)


def compared(name: str, timed: Timed, ops: Sequence[str], k: int, other: str = REFERENCE, filled: bool = True) -> Line:
    """`columns` beside another arm on some operators: seeds of the policy crossed with operators, those of the other averaged."""
    ours, theirs = (timed.logs(arm, ops, k, filled) for arm in (LEARNED, other))
    theirs = np.repeat(theirs.mean(axis=1, keepdims=True), ours.shape[1], axis=1)
    kept = np.isfinite(ours).all(axis=1) & np.isfinite(theirs).all(axis=1)
    ours, theirs = ours[kept], theirs[kept]
    if not len(ours):
        return Line(name, 0, math.nan, math.nan, math.nan, math.nan)
    low, high = bootstrap(lambda a, b: (a - b).mean(), ours, theirs, resamples=RESAMPLES, crossed=True)
    gaps = (ours - theirs).mean(axis=1)
    return Line(name, len(gaps), math.exp(gaps.mean()), math.exp(low), math.exp(high), sign_flip(gaps))


def primary(timed: Timed) -> Line:
    """The one comparison that the plan names first."""
    return compared("all operators", timed, timed.whole, FIRST)


def secondary(timed: Timed) -> list[Line]:
    """The others that the plan names, with Holm's correction."""
    whole, deep = timed.whole, timed.deep(RANKS[-1])
    lines = [compared(f"first program alone (k = {RANKS[0]})", timed, whole, RANKS[0])]
    lines += [compared(f"first {RANKS[-1]} programs, the first {len(deep)} operators", timed, deep, RANKS[-1])] if deep else []
    for dtype in sorted({operators.parse(op).dtype for op in whole}):
        lines.append(compared(dtype, timed, [op for op in whole if operators.parse(op).dtype == dtype], FIRST))
    lines += [compared(f"beside `{arm}`", timed, whole, FIRST, arm) for arm in timed.arms if arm not in (LEARNED, REFERENCE)]
    adjusted = holm([line.p for line in lines])
    return [Line(**{**vars(line), "p_holm": p}) for line, p in zip(lines, adjusted, strict=True)]


def answer(line: Line) -> str:
    """The first sentence of the page."""
    said = f"in {line.ratio:.3f} of its time ({line.low:.3f} to {line.high:.3f}, p {_p(line.p)})"
    if line.p <= 0.05 and line.high < 1.0:
        verdict = "Yes: the learned policy beats the traverser"
    elif line.p <= 0.05 and line.low > 1.0:
        verdict = "No: the traverser beats the learned policy"
    elif line.high < MARGIN:
        verdict = f"Neither beats the other: the learned policy is not inferior by the margin of {MARGIN - 1:.0%}"
    else:
        verdict = "Not decided: the interval holds 1 and passes the margin"
    return f"**{verdict}**: on {line.operators} operators the best of four programs of the policy runs {said}."


def lines_of(folder: Path, figures: str) -> list[str]:
    """The page's section: `folder` holds the raw rows, `figures` begins the names of its figures."""
    timed, alone = read(folder), read(folder, by_trials_alone=True)
    first, whole = primary(timed), timed.whole
    head = ("", "operators", "time over the other's", "95 % interval", "p", "p (Holm)")
    others = [
        compared("by trials alone", alone, alone.whole, FIRST),
        compared("without operators on which an arm has no time", timed, whole, FIRST, filled=False),
    ]
    return [
        "## Do learned policies beat the traverser?", "", answer(first), "",
        f"The plan was written before: [plan](../gpu_study/README.md). {len(whole)} of its "
        f"{len({row['operator'] for row in timed.proposals})} operators are whole. `{LEARNED}` has five training seeds, the "
        f"reference is `{REFERENCE}`; ratios are geometric means over operators, below 1 the policy is faster.", "",
        *table(head, [first.cells, *(line.cells for line in others)]), "",
        "### Secondary", "", *table(head, [line.cells for line in secondary(timed)]), "",
        "### All arms", "", *_arms(timed, whole), "",
        f"![shares of operators within a factor of the best time known]({figures}_study.png)", "",
        f"![time of the policy over the traverser's, operator by operator]({figures}_study_operators.png)", "",
        "### Classes of operators", "", *_classes(timed, whole), "",
        "### Furthest apart", "", *_extremes(timed, whole), "",
        "### How programs ended", "", *_statuses(timed),
    ]  # fmt: skip


def _arms(timed: Timed, ops: Sequence[str]) -> list[str]:
    """Every arm beside the best time known and torch, and what its construction cost."""
    best, cells = _best(timed, ops), []
    torch = np.array([timed.torch(op) for op in ops])
    for arm in timed.arms:
        logs = {k: timed.logs(arm, ops, k) for k in (1, FIRST)}
        over = {k: np.exp((found - best[:, None]).mean()) for k, found in logs.items()}
        known = np.isfinite(torch)
        beside = math.exp((np.log(torch[known])[:, None] - logs[FIRST][known]).mean()) if known.any() else math.nan
        seconds, evaluations = timed.cost(arm)
        cells.append((
            f"`{arm}`", str(len(timed.arms[arm])), f"{over[1]:.2f}", f"{over[FIRST]:.2f}", f"{beside:.2f}", f"{seconds:.2g}",
            f"{evaluations:.3g}",
        ))  # fmt: skip
    head = ("arm", "seeds", "first program", "best of four", "torch's time over it", "seconds to construct", "evaluations")
    count = int(np.isfinite(torch).sum())
    return [*table(head, cells), "", f"Times over the best known of an operator, in geometric means; torch on {count} operators."]


def _best(timed: Timed, ops: Sequence[str]) -> np.ndarray:
    """Logarithm of the best time of any arm's first four, float64 [operators]."""
    found: np.ndarray = np.min([timed.logs(arm, ops, FIRST).min(axis=1) for arm in timed.arms], axis=0)
    return found


def _classes(timed: Timed, ops: Sequence[str]) -> list[str]:
    """Ratio by class of operator, and torch's time over the best known."""
    best, names = _best(timed, ops), [operators.parse(op).name for op in ops]
    cells = []
    for name in dict.fromkeys(sorted(names)):
        places = [place for place, own in enumerate(names) if own == name]
        chosen = [ops[place] for place in places]
        ratio = math.exp(gaps(timed, chosen).mean())
        torch = [timed.torch(op) / math.exp(best[place]) for op, place in zip(chosen, places, strict=True)]
        beside = geometric_mean(value for value in torch if value < math.inf)
        cells.append((name, str(len(chosen)), f"{ratio:.3f}", f"{beside:.2f}" if beside else ""))
    return table(("class", "operators", f"`{LEARNED}` over `{REFERENCE}`", "torch's time over the best known"), cells)


def gaps(timed: Timed, ops: Sequence[str]) -> np.ndarray:
    """Logarithm of the policy's time over the traverser's, seeds averaged, float64 [operators]."""
    found: np.ndarray = timed.logs(LEARNED, ops, FIRST).mean(axis=1) - timed.logs(REFERENCE, ops, FIRST).mean(axis=1)
    return found


def _extremes(timed: Timed, ops: Sequence[str]) -> list[str]:
    """Operators on which one is furthest ahead of the other."""
    found = gaps(timed, ops)
    order = np.argsort(found)
    chosen = dict.fromkeys([*order[:MOST].tolist(), *order[-MOST:].tolist()])
    cells = [(f"`{ops[place]}`", f"{math.exp(found[place]):.2f}") for place in chosen]
    return table(("operator", f"`{LEARNED}` over `{REFERENCE}`"), cells)


def _statuses(timed: Timed) -> list[str]:
    """How an arm's proposals ended."""
    counts = timed.statuses()
    names = sorted({status for count in counts.values() for status in count})
    cells = [(f"`{arm}`", *(str(count[name]) for name in names)) for arm, count in counts.items()]
    return table(("arm", *names), cells)


def draw(folder: Path, path: Path) -> list[str]:
    """The figures, whose names begin as `path` does; their names."""
    timed = read(folder)
    with plt.rc_context(RC):
        made = [save(_profiles(timed), path.with_name(f"{path.name}_study.png"))]
        made.append(save(_operators(timed), path.with_name(f"{path.name}_study_operators.png")))
    return [f"{path.name}_study.png", f"{path.name}_study_operators.png"] if made else []


def _profiles(timed: Timed) -> Figure:
    """Share of operators and seeds within a factor of the best time known, one line an arm."""
    ops, factors = timed.whole, np.geomspace(1.0, 8.0, 200)
    best, looks = _best(timed, ops), look(list(timed.arms))
    figure, several = plt.subplots(1, 2, figsize=(9.0, 3.6), sharey=True)
    for axes, k in zip(several, (1, FIRST), strict=True):
        for arm in timed.arms:
            over = np.exp(timed.logs(arm, ops, k) - best[:, None])
            axes.plot(factors, performance_profile(over, factors), color=looks[arm][0], label=arm, lw=1.6)
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 1.5, 2, 4, 8])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
        axes.set_title("first program" if k == 1 else f"best of {k} programs")
        axes.set_xlabel("time over the best known")
    several[0].set_ylabel("share of operators")
    several[1].legend(loc="lower right")
    return figure


def _operators(timed: Timed) -> Figure:
    """Every operator's ratio in ascending order, coloured by data type."""
    ops = timed.whole
    found, dtypes = gaps(timed, ops), [operators.parse(op).dtype for op in ops]
    looks = look(sorted(set(dtypes)))
    order = np.argsort(found)
    figure, axes = plt.subplots(figsize=(9.0, 3.4))
    for dtype in sorted(set(dtypes)):
        places = [(rank, math.exp(found[at])) for rank, at in enumerate(order) if dtypes[at] == dtype]
        colour, marker = looks[dtype]
        axes.plot(*zip(*places, strict=True), marker, color=colour, ms=4, lw=0, label=dtype)
    axes.axhline(1.0, color="#555555", lw=0.8)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.set_xlabel("operators, in ascending order")
    axes.set_ylabel(f"time of {LEARNED} over {REFERENCE}")
    axes.legend(loc="upper left")
    return figure


def _p(value: float) -> str:
    """A p value as people write it."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
