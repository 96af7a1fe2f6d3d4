"""Figure for suites that compare our kernels with other libraries: a line for each operator with our speed-up and our speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt

from experiments.common import style
from experiments.comparison.figures import ratio_axis
from experiments.comparison.summary import Interval


@dataclass(frozen=True)
class SpeedUp:
    """One line of the figure: our speed-up as called and without call overhead, our speed and the other library's.

    The unit of speed is the suite's, such as GB/s.
    """

    operator: str
    called: Interval
    inner: float
    ours: float
    theirs: float
    peer: str = ""
    """Name of the library compared with, shown next to the speed-up if there are several."""


def draw(rows: Sequence[SpeedUp], labels: tuple[str, str], path: Path, shown: float = 0.0) -> str:
    """Draw the figure, write it to `path` and return its file name.

    Left: dots are speed-ups as called, rings are speed-ups without call overhead. Right: bars are our speeds, ticks theirs.
    `labels` are the titles of the two x axes; the axis of speeds reaches at least to `shown`.
    """
    rows = sorted(rows, key=lambda row: row.called["median"])
    with plt.rc_context(style.RC):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(10.5, 0.9 + 0.27 * len(rows)), sharey=True, layout="constrained", width_ratios=(3, 2)
        )
        for y, row in enumerate(rows):
            low, high = row.called["low"], row.called["high"]
            colour = style.PALETTE[2 if low > 1 else 1 if high < 1 else 7]
            left.plot([low, high], [y, y], color=colour, linewidth=2.4, alpha=0.5, solid_capstyle="round")
            left.plot(row.called["median"], y, "o", color=colour, markersize=6, markeredgecolor="white", markeredgewidth=0.6)
            left.plot(row.inner, y, "o", markersize=5, markerfacecolor="none", markeredgecolor=style.INK)
            left.annotate(
                f"{style.number(row.called['median'])}  {row.peer}".rstrip(), (max(high, row.inner), y), xytext=(6, 0),
                textcoords="offset points", va="center", fontsize=7, color="#555555",
            )  # fmt: skip
            right.barh(y, row.ours, height=0.55, color=style.PALETTE[0], alpha=0.85)
            right.plot(row.theirs, y, "|", color=style.INK, markersize=9)
        left.set_yticks(range(len(rows)), [style.plain(row.operator) for row in rows], fontsize=7.5)
        for axes in (left, right):
            axes.tick_params(axis="y", length=0)
            axes.grid(visible=False, axis="y")
        ends = [end for row in rows for end in (row.called["low"], row.called["high"], row.inner)]
        left.set_xlim(min(ends), 2 * max(ends))  # with room for the text next to the dots
        ratio_axis(left, labels[0])
        right.set_xlabel(labels[1])
        right.set_xlim(0, max(shown, right.get_xlim()[1]))
        left.set_ylim(-0.7, len(rows) - 0.3)
        return style.save(figure, path)
