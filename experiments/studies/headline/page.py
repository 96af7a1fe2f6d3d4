"""Page of the study of learned policies, made from raw rows: the answer first, then tables and figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agents.runs.texts import table
from agents.training.operators.chosen import UNSEEN
from experiments.common import style
from experiments.common.statistics import bootstrap, geometric_mean, holm, performance_profile, sign_flip
from experiments.common.style import GREY, RC, look, save
from experiments.studies.headline.chosen import NEAR_TIMED, NEAR_VARIANTS, listed
from experiments.studies.headline.scores import FIRST, RANKS, REFERENCE, Timed, read
from gensor_gym import operators
from gensor_gym.measure.stats.intervals import LEVEL

MARGIN = 1.10
"""Ratio of times below which the policy counts as not inferior to the traverser."""
RESAMPLES = 10_000
SUBJECTS = {
    "columns": "the learned policy", "learned": "the learned model of time",
    "in_turn": "the learned policy in turn with a learned model of time",
}  # fmt: skip
"""Learned arm -> its name in sentences."""
MOST = 8
"""Number of operators that are listed at each end: with the smallest and with the largest ratios."""


@dataclass(frozen=True)
class Line:
    """Comparison of two arms (strategies with seeds) on some operators.

    It has the geometric mean of the ratios of their times, its interval and p values. A mean below 1 says that the first arm is
    faster.
    """

    name: str
    operators: int
    ratio: float
    low: float
    high: float
    p: float
    p_holm: float = math.nan

    @property
    def cells(self) -> tuple[str, ...]:
        """The comparison as the cells of a table's row."""
        holm_cell = "" if math.isnan(self.p_holm) else _p(self.p_holm)
        return (self.name, str(self.operators), f"{self.ratio:.3f}", f"{self.low:.3f} to {self.high:.3f}", _p(self.p), holm_cell)


def compared(
    name: str, timed: Timed, ops: Sequence[str], k: int, other: str = REFERENCE, filled: bool = True, ours: str = ""
) -> Line:
    """Compare the time of the fastest of the first k programs of two arms, averaged over seeds.

    `ours` is the first arm, by default the learned one; `other` is the second. With `filled`, a missing time counts as the
    operator's slowest time; otherwise operators with a missing time are left out. The bootstrap draws operators, and the same
    seeds of the first arm for all of them.
    """
    mine, theirs = (timed.logs(arm, ops, k, filled) for arm in (ours or timed.learned, other))
    theirs = np.repeat(theirs.mean(axis=1, keepdims=True), mine.shape[1], axis=1)
    kept = np.isfinite(mine).all(axis=1) & np.isfinite(theirs).all(axis=1)
    mine, theirs = mine[kept], theirs[kept]
    if not len(mine):
        return Line(name, 0, math.nan, math.nan, math.nan, math.nan)
    low, high = bootstrap(lambda a, b: (a - b).mean(), mine, theirs, resamples=RESAMPLES, crossed=True)
    found = (mine - theirs).mean(axis=1)
    return Line(name, len(found), math.exp(found.mean()), math.exp(low), math.exp(high), sign_flip(found))


def primary(timed: Timed) -> Line:
    """Return the primary comparison of the plan: the learned arm with the reference on all operators."""
    return compared("all operators", timed, timed.whole, FIRST)


def parts(timed: Timed, first: str, most: str) -> list[Line]:
    """Return the comparison after one program (named `first`), after the most programs (named `most`), and by stratum."""
    deep = timed.deep(RANKS[-1])
    lines = [compared(first, timed, timed.whole, RANKS[0])]
    lines += [compared(most, timed, deep, RANKS[-1])] if deep else []
    return lines + [compared(name, timed, ops, FIRST) for name, ops in strata(timed.whole).items()]


def secondary(timed: Timed) -> list[Line]:
    """Return the secondary comparisons of the plan, with p values corrected by Holm's method."""
    most = f"first {RANKS[-1]} programs, the first {len(timed.deep(RANKS[-1]))} operators"
    lines = parts(timed, f"first program alone (k = {RANKS[0]})", most)
    others = [arm for arm in timed.arms if arm not in (timed.learned, REFERENCE)]
    lines += [compared(f"over `{arm}`", timed, timed.whole, FIRST, arm) for arm in others]
    adjusted = holm([line.p for line in lines])
    return [Line(**{**vars(line), "p_holm": p}) for line, p in zip(lines, adjusted, strict=True)]


def strata(ops: Sequence[str]) -> dict[str, list[str]]:
    """Group operators by data type; if all have one data type, by whether Measured v1 has times of their class."""
    parsed = {op: operators.parse(op) for op in ops}
    if len({op.dtype for op in parsed.values()}) > 1:
        names = {text: op.dtype for text, op in parsed.items()}
    else:
        names = {text: f"classes {'without' if op.name in UNSEEN else 'with'} recorded times" for text, op in parsed.items()}
    return {name: [text for text in ops if names[text] == name] for name in sorted(set(names.values()))}


def answer(line: Line, subject: str = "the learned policy") -> str:
    """Return the first sentence of the page, which says whether `subject` beats the traverser."""
    said = f"in {line.ratio:.3f} of its time ({line.low:.3f} to {line.high:.3f}, p {_p(line.p)})"
    if line.p <= 0.05 and line.high < 1.0:
        verdict = f"Yes: {subject} beats the traverser"
    elif line.p <= 0.05 and line.low > 1.0:
        verdict = f"No: the traverser beats {subject}"
    elif line.high < MARGIN:
        verdict = f"Neither beats the other: {subject} is not inferior by the margin of {MARGIN - 1:.0%}"
    else:
        verdict = "Not decided: the interval holds 1 and passes the margin"
    return f"**{verdict}**: on {line.operators} operators the best of its four programs runs {said}."


def lines_of(folder: Path, figures: str, plan: str = "../gpu_study/README.md") -> list[str]:
    """Return the lines of the page's section about a study.

    `folder` has the raw rows, `figures` is the prefix of the figures' file names, and `plan` is the link to the plan.
    """
    timed, alone = read(folder), read(folder, by_trials_alone=True)
    first, whole = primary(timed), timed.whole
    subject = SUBJECTS[timed.learned]
    count = len(timed.arms[timed.learned])
    seeds = f"{count} training seed{'s' * (count != 1)}"
    head = ("", "operators", "time over the other's", f"{LEVEL} interval", "p", "p (Holm)")
    others = [
        compared("by trials alone", alone, alone.whole, FIRST),
        compared("without operators on which one of the two has no time", timed, whole, FIRST, filled=False),
    ]
    near = {"a variant of training": listed(NEAR_VARIANTS)}
    if timed.learned == "in_turn":
        near["one whose times were learned from"] = listed(NEAR_TIMED)
    for what, ops in near.items():
        if len(apart := [op for op in whole if op not in ops]) < len(whole):
            others.append(compared(f"without operators near {what}", timed, apart, FIRST))
    return [
        "## Do learned policies beat the traverser?", "", answer(first, subject), "",
        f"The plan was written before: [plan]({plan}). Of {len(timed.operators)} operators {len(timed.tried)} "
        f"were tried whole, and on {len(whole)} of these some program ran well: these count. `{timed.learned}` has {seeds}, "
        f"the reference is `{REFERENCE}`; ratios are geometric means over operators, below 1 it is faster.", "",
        *table(head, [first.cells, *(line.cells for line in others)]), "",
        f"![time over the traverser's, by comparison and by operator]({figures}_study.png)", "",
        "### Secondary", "", *table(head, [line.cells for line in secondary(timed)]), "",
        "### All arms", "", *_arms(timed, whole), "",
        f"![shares of operators within a factor of the best time known]({figures}_study_profiles.png)", "",
        "### Classes of operators", "", *_classes(timed, whole), "",
        "### Furthest apart", "", *_extremes(timed, whole), "",
        "### How programs ended", "", *_statuses(timed, whole),
    ]  # fmt: skip


def _arms(timed: Timed, ops: Sequence[str]) -> list[str]:
    best, cells = best_known(timed, ops), []
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


def best_known(timed: Timed, ops: Sequence[str]) -> np.ndarray:
    """Return the logarithm of the best time among the first four programs of all arms, float64 [operators]."""
    found: np.ndarray = np.min([timed.logs(arm, ops, FIRST).min(axis=1) for arm in timed.arms], axis=0)
    return found


def _classes(timed: Timed, ops: Sequence[str]) -> list[str]:
    best, names = best_known(timed, ops), [operators.parse(op).name for op in ops]
    cells = []
    for name in dict.fromkeys(sorted(names)):
        places = [place for place, own in enumerate(names) if own == name]
        chosen = [ops[place] for place in places]
        ratio = math.exp(gaps(timed, chosen).mean())
        torch = [timed.torch(op) / math.exp(best[place]) for op, place in zip(chosen, places, strict=True)]
        beside = geometric_mean(value for value in torch if value < math.inf)
        cells.append((name, str(len(chosen)), f"{ratio:.3f}", f"{beside:.2f}" if beside else ""))
    return table(("class", "operators", f"`{timed.learned}` over `{REFERENCE}`", "torch's time over the best known"), cells)


def gaps(timed: Timed, ops: Sequence[str]) -> np.ndarray:
    """Return log(policy's time / traverser's time), both averaged over seeds, float64 [operators]."""
    found: np.ndarray = timed.logs(timed.learned, ops, FIRST).mean(axis=1) - timed.logs(REFERENCE, ops, FIRST).mean(axis=1)
    return found


def _extremes(timed: Timed, ops: Sequence[str]) -> list[str]:
    found = gaps(timed, ops)
    order = np.argsort(found)
    chosen = dict.fromkeys([*order[:MOST].tolist(), *order[-MOST:].tolist()])
    cells = [(f"`{ops[place]}`", f"{math.exp(found[place]):.2f}") for place in chosen]
    return table(("operator", f"`{timed.learned}` over `{REFERENCE}`"), cells)


def _statuses(timed: Timed, ops: Sequence[str]) -> list[str]:
    counts = timed.statuses()
    names = sorted({status for count in counts.values() for status in count})
    cells = [(f"`{arm}`", *(str(count[name]) for name in names), str(timed.without(arm, ops))) for arm, count in counts.items()]
    return table(("arm", *names, "operators without a time"), cells)


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


# Figures of the study: ratios with intervals, the ratio of every operator, and performance profiles.

def draw(folder: Path, path: Path) -> list[str]:
    """Draw the figures of the rows in a folder, save them under names that begin like `path`, and return the names."""
    timed = read(folder)
    with plt.rc_context(RC):
        made = {"study": _ratios(timed), "study_profiles": _profiles(timed)}
        return [save(figure, path.with_name(f"{path.name}_{name}.png")) for name, figure in made.items()]


def _ratios(timed: Timed) -> Figure:
    upper = [primary(timed), *parts(timed, "first program alone", f"best of {RANKS[-1]}")]
    others = [arm for arm in timed.arms if arm not in (timed.learned, REFERENCE)]
    lower = [compared(arm, timed, timed.whole, FIRST, ours=arm) for arm in others]
    figure = plt.figure(figsize=(11.0, 4.8))
    rows = {"height_ratios": (len(upper), max(1, len(lower))), "width_ratios": (1.0, 1.3), "wspace": 0.12, "hspace": 0.45}
    grid = figure.add_gridspec(2, 2, **rows)
    colour = look([REFERENCE, timed.learned])[timed.learned][0]
    axes = figure.add_subplot(grid[0, 0] if lower else grid[:, 0])
    _forest(axes, upper, colour, f"{timed.learned} over {REFERENCE}")
    if lower:
        axes = figure.add_subplot(grid[1, 0])
        _forest(axes, lower, GREY, f"other arms over {REFERENCE}")
    axes.set_xlabel("time over the traverser's (left of 1: faster)")
    _operators(figure.add_subplot(grid[:, 1]), timed)
    return figure


def _forest(axes: Axes, lines: Sequence[Line], colour: str, title: str) -> None:
    lines = [line for line in lines if line.operators]
    for row, line in enumerate(lines):
        sides = [[line.ratio - line.low], [line.high - line.ratio]]
        axes.errorbar([line.ratio], [row], xerr=sides, fmt="o", ms=5, color=colour, capsize=3)
    axes.axvline(1.0, color="#555555", lw=0.8)
    axes.set_yticks(range(len(lines)), [f"{line.name} ({line.operators})" for line in lines])
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_title(title)
    style.ratio_axis(axes, "x")


def _operators(axes: Axes, timed: Timed) -> None:
    ops = timed.whole
    found, groups = gaps(timed, ops), strata(ops)
    looks, order = look(list(groups)), np.argsort(found)
    for name, members in groups.items():
        places = [(rank, math.exp(found[at])) for rank, at in enumerate(order) if ops[at] in members]
        colour, marker = looks[name]
        axes.plot(*zip(*places, strict=True), marker, color=colour, ms=4, lw=0, label=name)
    axes.axhline(1.0, color="#555555", lw=0.8)
    axes.set_title(f"{timed.learned} over {REFERENCE}, operator by operator")
    style.ratio_axis(axes, "y")
    axes.set_xlabel("operators, in ascending order")
    axes.legend(loc="upper left")


def _profiles(timed: Timed) -> Figure:
    ops, factors = timed.whole, np.geomspace(1.0, 8.0, 200)
    best, looks = best_known(timed, ops), look(list(timed.arms))
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
    several[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
