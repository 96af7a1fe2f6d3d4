"""Comparison of model and measurement on recorded tables: ranking, cost of the first choices, calibration, noise.

Every complete table of a machine is read. The coefficients of the model's terms are fitted only to the machine's tables of the
train part; all other rows are predictions for unseen operators.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from omegaconf import DictConfig

from agents.runs.files import write_text
from experiments.benches.model import COEFFICIENTS, OfOperator, Sample, fit
from experiments.common import style
from experiments.common.statistics import expected_best, fastest, spearman
from experiments.tables.table import Cell, Stamp, Table
from gensor_gym import hardware
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.terms import TERMS
from gensor_gym.fingerprint import common, fingerprint
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.described import RECORDINGS
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.backend import passes_of
from gensor_gym.measure.records.optimum import Optimum, find_optimum
from gensor_gym.measure.records.tables import Table as RecordedTable
from gensor_gym.measure.records.tables import read_table

# Read recorded tables of a machine for reports: kernels that succeeded, their optimum, and regrets.

@dataclass(frozen=True)
class Recorded(OfOperator):
    """A complete recorded table of one operator: the distinct kernels that succeeded, their measurements and their optimum.

    `rows` are the kernels' schedules; `schedules` and `failed` count the table's schedules and the kernels that failed.
    """

    machine: str
    graph: ConstructionGraph
    rows: np.ndarray
    measured: tuple[Measurement, ...]
    optimum: Optimum
    schedules: int
    failed: int

    @property
    def seconds(self) -> np.ndarray:
        """Median seconds of the kernels, float64 [N]."""
        return np.array([m.seconds for m in self.measured])

    @property
    def sample(self) -> Sample:
        """The table as a sample to which the model can be fitted."""
        return Sample(self.graph, self.rows, self.seconds)


def read_folder(folder: Path, space: str, limit: int | None = None) -> list[Recorded]:
    """Read the complete tables of a space in a folder, sorted by class, at most `limit` of each class.

    Raise ValueError if there are none.
    """
    found: dict[str, list[Recorded]] = defaultdict(list)
    for path in sorted(folder.glob("*.parquet")):
        table = read_table(path)
        if table.about.get("complete") and table.about["space"] == space:
            made = _recorded(folder.name, table)
            found[made.graph.operator.name].append(made)
    if not found:
        raise ValueError(f"{folder} holds no complete recorded table of space {space} (*.parquet, written by gensor record)")
    return [table for name in sorted(found) for table in found[name][:limit]]


def _recorded(machine: str, table: RecordedTable) -> Recorded:
    """Return the kernels of a table, each distinct kernel once, with their optimum."""
    hw = hardware.from_json(table.about["hardware"])
    graph = ConstructionGraph(table.about["operator"], hw, table.about["space"], calibrated=False)
    kernels = {r.measurement.digest: r for r in reversed(table.records)}
    good = [r for r in kernels.values() if r.measurement.status is Status.OK]
    measured = tuple(r.measurement for r in good)
    drift = table.about.get("drift", 0.0)
    optimum = find_optimum([m.samples for m in measured], [passes_of(m) for m in measured], drift=drift)
    rows = graph.stack([Schedule.parse(r.schedule) for r in good])
    return Recorded(machine, graph, rows, measured, optimum, len(table.records), len(kernels) - len(good))


def regret_of_first(table: Recorded, predicted: np.ndarray) -> np.ndarray:
    """Return the regret of the fastest kernel among the first k by prediction, for k = 1 .. N, float64 [N]."""
    order = np.argsort(predicted, kind="stable")
    return np.minimum.accumulate(regrets(table)[order])


def regret_of_random(table: Recorded) -> np.ndarray:
    """Return the expected regret of the best of k distinct kernels drawn at random, for k = 1 .. N, float64 [N]."""
    return expected_best(regrets(table))


def regrets(table: Recorded) -> np.ndarray:
    """Return the regret of every kernel, which is zero if it is statistically tied with the best, float64 [N]."""
    return np.where(table.optimum.tied, 0.0, np.log(table.seconds / table.optimum.best))


def again(table: Recorded) -> float:
    """Return the rank correlation of the kernels' times in the first pass with those in later passes.

    No model can be better. The result is NaN for one pass.
    """
    halves: tuple[list[float], list[float]] = ([], [])
    for m in table.measured:
        passes, first = np.asarray(passes_of(m)), min(passes_of(m), default=0)
        samples = np.asarray(m.samples)
        if not len(passes) or (passes == first).all():
            return float("nan")
        halves[0].append(float(np.median(samples[passes == first])))
        halves[1].append(float(np.median(samples[passes != first])))
    return spearman(np.array(halves[0]), np.array(halves[1]))


# Figures of the sim-to-real report: measured against predicted time, and the cost of the model's first choices.

BEFORE, AFTER, TIED = style.PALETTE[7], style.PALETTE[0], style.PALETTE[1]
COLUMNS = 5


def draw_times(recorded: list[Recorded], coefficients: np.ndarray, path: Path) -> str:
    """Draw measured against predicted seconds of every kernel, a panel for each operator; return the file name.

    Predictions are shown before and after the fit of `coefficients`.
    """

    def panel(axes: Axes, table: Recorded) -> None:
        seconds, before = table.seconds, table.sample.predicted()
        after = table.sample.with_values(COEFFICIENTS, coefficients).predicted()
        for predicted, colour in ((before, BEFORE), (after, AFTER)):
            axes.plot(predicted, seconds, ".", color=colour, markersize=3, alpha=0.5, markeredgewidth=0)
        axes.plot(after[table.optimum.tied], seconds[table.optimum.tied], "o", color=TIED, fillstyle="none", markersize=5)
        both = min(before.min(), after.min(), seconds.min()), max(before.max(), after.max(), seconds.max())
        axes.plot(both, both, color=style.INK, linewidth=0.8, alpha=0.5)
        for axis in ("x", "y"):
            style.time_axis(axes, axis)

    marks = [
        Line2D([], [], color=BEFORE, marker=".", linestyle="", label="model"),
        Line2D([], [], color=AFTER, marker=".", linestyle="", label="after the fit on train tables"),
        Line2D([], [], color=TIED, marker="o", fillstyle="none", linestyle="", label="tied with the fastest"),
    ]
    return _panels(recorded, panel, marks, ("predicted", "measured"), path)


def draw_regret(recorded: list[Recorded], coefficients: np.ndarray, path: Path) -> str:
    """Draw the regret of the best of the model's first k programs over k, a panel for each operator; return the file name."""

    def panel(axes: Axes, table: Recorded) -> None:
        after = table.sample.with_values(COEFFICIENTS, coefficients).predicted()
        k = np.arange(1, len(table.measured) + 1)
        axes.plot(k, 100 * regret_of_random(table), color=style.INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.step(k, 100 * regret_of_first(table, table.sample.predicted()), color=BEFORE, linewidth=1.6, where="post")
        axes.step(k, 100 * regret_of_first(table, after), color=AFTER, linewidth=1.3, where="post")
        axes.axhspan(0, 100 * table.optimum.floor, color=TIED, alpha=0.15, linewidth=0)
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=1.0, linscale=0.6)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")

    marks = [
        Line2D([], [], color=BEFORE, label="model"),
        Line2D([], [], color=AFTER, label="after the fit on train tables"),
        Line2D([], [], color=style.INK, linestyle=(0, (4, 3)), label="kernels drawn at random, expected"),
        plt.Rectangle((0, 0), 1, 1, color=TIED, alpha=0.15, label="noise floor"),
    ]
    return _panels(recorded, panel, marks, ("kernels measured", "regret of the best"), path)


def _panels(
    recorded: list[Recorded], panel: Callable[[Axes, Recorded], None], marks: list, labels: tuple[str, str], path: Path
) -> str:
    with plt.rc_context(style.RC):
        figure, grid = style.panels(len(recorded), COLUMNS, (3.3, 2.9), 0.5)
        for axes, table in zip(grid.flat, recorded, strict=False):
            panel(axes, table)
            axes.tick_params(labelsize=7)
            axes.set_title(f"{style.short_operator(table.operator)}\n{table.part}", fontsize=7.5)
        for axes in grid[:, 0]:
            axes.set_ylabel(labels[1])
        for axes in grid.flat[max(0, len(recorded) - grid.shape[1]) : len(recorded)]:  # the lowest panel of every column
            axes.set_xlabel(labels[0])
        figure.legend(handles=marks, loc="outside upper center", ncols=len(marks))
        return style.save(figure, path)


TOP = (1, 3, 10)
"""Numbers k for which the regret of the best of the model's first k programs is reported."""


@dataclass(frozen=True)
class Score:
    """Scores of predictions on one table.

    They are rank correlations (of all kernels and of the fastest), regrets of the first choices, and quantiles (50, 10 and 90
    percent) of measured over predicted time.
    """

    spearman: float
    spearman_fastest: float
    regrets: tuple[float, ...]
    ratio: tuple[float, float, float]


Scored = tuple[Recorded, Score, Score]
"""(table, scores of the model, scores of the model after the fit)."""


def make(config: DictConfig, folder: Path) -> list[Table]:
    """Make three tables and two figures per machine, and write the values to `sim_to_real_values.json`.

    Raise ValueError if a folder has no complete table, or a machine no table of the train part.
    """
    folders = [Path(path) for path in config.recordings] if config.recordings else _shipped()
    tables: list[Table] = []
    values, met = [], []
    for place in folders:
        recorded = read_folder(place, config.space, config.limit)
        coefficients = fit_on_train(recorded)
        scored = [
            (t, score(t, t.sample.predicted()), score(t, t.sample.with_values(COEFFICIENTS, coefficients).predicted()))
            for t in recorded
        ]
        tables += [view(scored) for view in (_classes, _ranking, _calibration)]
        values.append(_values(scored, coefficients))
        met += [fingerprint(table.graph) for table in recorded]
        if config.figures:

            draw_times(recorded, coefficients, folder / f"sim_to_real_{recorded[0].machine}_times.png")
            draw_regret(recorded, coefficients, folder / f"sim_to_real_{recorded[0].machine}_regret.png")
    found = {"fingerprint": common(met), "machines": values}
    write_text(folder / "sim_to_real_values.json", json.dumps(found, indent=1))
    return tables


def _shipped() -> list[Path]:
    return [RECORDINGS / name for name in hardware.recorded_names()]


def fit_on_train(recorded: Iterable[Recorded]) -> np.ndarray:
    """Fit the coefficients of the model's terms, float64 [P], to the tables of the train part.

    Raise ValueError if there are none.
    """
    train = [table.sample for table in recorded if table.part == "train"]
    if not train:
        raise ValueError("a fit needs a table of an operator of the train part; these tables have none")
    return fit(train)


def score(table: Recorded, predicted: np.ndarray) -> Score:
    """Score predicted seconds [N] of a table's kernels: ranking, regret of the first choices, and calibration."""
    seconds = table.seconds
    fast = fastest(seconds)
    ratio = np.quantile(seconds / predicted, (0.5, 0.1, 0.9))
    return Score(
        spearman(predicted, seconds),
        spearman(predicted[fast], seconds[fast]),
        tuple(float(r) for r in regret_of_first(table, predicted)[[min(k, len(seconds)) - 1 for k in TOP]]),
        (float(ratio[0]), float(ratio[1]), float(ratio[2])),
    )


def _ranking(scored: Sequence[Scored]) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            t.operator, t.part, str(len(t.measured)), _two(b.spearman, a.spearman), again(t),
            _two(b.spearman_fastest, a.spearman_fastest),
            *(_percents(b.regrets[i], a.regrets[i]) for i in range(len(TOP))),
            _percent(float(regret_of_random(t)[min(TOP[-1], len(t.measured)) - 1])), _percent(t.optimum.floor),
            str(t.optimum.tied.sum()),
        )
        for t, b, a in scored
    )  # fmt: skip
    columns = (
        "operator", "part", "kernels", "Spearman", "of times again", "in the fastest fifth",
        *(f"regret of the first {k}" if k > 1 else "regret of the first" for k in TOP), f"of {TOP[-1]} at random",
        "noise floor", "tied with the best",
    )  # fmt: skip
    notes = (
        "Measured on this machine, every kernel of the space. Where a cell has two numbers, the second is "
        "after a fit of the model's nine coefficients to this machine's tables of the train part; rows of the other parts "
        "were not seen by it. (The shipped constants of the CPU model come from other timings, of train operators too.)",
        "Regret of the first k: log(fastest measured among the model's k first / fastest of all), zero for kernels that "
        "cannot be told from the fastest. Of times again: the rank correlation of the first pass of timings with the later "
        "ones, which no model can pass. At random: its expectation for so many different kernels drawn at random.",
        "Noise floor: two medians of the fastest kernel itself differ by less in 97.5 of 100 cases. Where the space was measured "
        "in part only, the fastest is that of the part.",
    )
    return Table(f"{scored[0][0].machine}: ranking and realised regret", Stamp.REPLICATED, columns, rows, notes)


def _calibration(scored: Sequence[Scored]) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (t.operator, t.part, *(_ratio(s) for s in (b, a)), *(s.ratio[2] / s.ratio[1] for s in (b, a))) for t, b, a in scored
    )
    columns = ("operator", "part", "measured / model", "after the fit", "spread", "after the fit")
    notes = (
        "Measured over model: median over the kernels of the space, in brackets the 10 and 90 percent quantiles; spread is the "
        "ratio of the two.",
    )
    return Table(f"{scored[0][0].machine}: calibration", Stamp.REPLICATED, columns, rows, notes)


def _classes(scored: Sequence[Scored]) -> Table:
    classes: dict[str, list[Scored]] = defaultdict(list)
    for one in scored:
        classes[one[0].graph.operator.name].append(one)
    rows = [_class_row(name, of) for name, of in [*classes.items(), ("all", scored)]]
    columns = (
        "class", "tables", "Spearman", "in the fastest fifth", *(f"regret of the first {k}" for k in TOP), "measured / model",
        "after the fit", "noise floor",
    )  # fmt: skip
    notes = ("Means over the tables of a class; of measured over model the geometric mean of the medians.",)
    return Table(f"{scored[0][0].machine}: classes of operators", Stamp.REPLICATED, columns, tuple(rows), notes)


def _class_row(name: str, scored: Sequence[Scored]) -> tuple[str | float, ...]:
    tables, *scores = zip(*scored, strict=True)

    def both(of: Callable[[Score], float]) -> list[float]:
        return [float(np.nanmean([of(one) for one in some])) for some in scores]

    scale = [float(np.exp(np.mean([np.log(one.ratio[0]) for one in some]))) for some in scores]
    return (
        name, str(len(scored)), _two(*both(lambda s: s.spearman)), _two(*both(lambda s: s.spearman_fastest)),
        *(_percents(*both(lambda s, i=i: s.regrets[i])) for i in range(len(TOP))),  # type: ignore[misc]
        *scale, _percent(float(np.mean([table.optimum.floor for table in tables]))),
    )  # fmt: skip


def _values(scored: Sequence[Scored], coefficients: np.ndarray) -> dict[str, object]:
    return {
        "machine": scored[0][0].machine,
        "coefficients": dict(zip(TERMS, (round(float(c), 4) for c in coefficients), strict=True)),
        "tables": [
            {
                "operator": t.operator, "part": t.part, "schedules": t.schedules, "kernels": len(t.measured),
                "failed": t.failed, "complete": True, "best_s": t.optimum.best,
                "tied": int(t.optimum.tied.sum()), "floor": t.optimum.floor,
                "again": again(t), "before": dataclasses.asdict(b), "after": dataclasses.asdict(a),
            }
            for t, b, a in scored
        ],
    }  # fmt: skip


def _two(before: float, after: float) -> str:
    return f"{before:.2f}, {after:.2f}"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _percents(before: float, after: float) -> str:
    return f"{before:.1%}, {after:.1%}"


def _ratio(found: Score) -> str:
    return f"{found.ratio[0]:.2f} [{found.ratio[1]:.2f}, {found.ratio[2]:.2f}]"
