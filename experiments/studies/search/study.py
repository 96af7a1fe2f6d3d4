"""Compare many strategies on recorded tasks with several seeds: `python -m experiments study experiment=recorded`.

All strategies have the same budget, start from the same task and have no other knowledge; each search has one thread. Trials are
answered from complete recorded tables, whose best kernel is known, or by the model. With the model, regrets are relative to the
best program that any search found.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape

from agents.cli.checks import check_whole
from agents.runs.files import write_text
from agents.runs.jobs import DONE, Jobs
from agents.runs.lines import with_bar
from agents.runs.pool import made
from agents.runs.settings import settings_of
from agents.runs.sheets.cells import Cell, Given, count, percent, percent_interval, seconds
from agents.runs.sheets.sheet import Sheet
from agents.runs.texts import p_text, page, table
from experiments.common import statistics, style
from experiments.studies.scores import DASHES, LINES, bands, difference, profiles, regret_figure, with_legend
from experiments.studies.search.scores import Curves, Scores, scores_of, summarise
from experiments.studies.study import Plan, Stamp, Study, study_command
from gensor_gym.measure.analytic import AnalyticBackend
from gensor_gym.measure.records.backend import RecordedBackend
from gensor_gym.measure.stats.intervals import LEVEL
from gensor_gym.registry import near

# Figures of a study: regret over trials and seconds, performance profiles, probability of improvement.

MOST_BANDS = 8
"""Largest number of strategies for which intervals are drawn; more would hide each other."""
POINTS = 48


def draw(scores: Scores, summary: dict[str, Any], reference: str, folder: Path) -> list[str]:
    """Draw all figures of a study of searches and return their file names."""
    looks = style.look(list(scores.strategies))
    colours = [colour for colour, _ in looks.values()]
    dashes = [LINES[colours[:i].count(colour) % len(LINES)] for i, colour in enumerate(colours)]
    lines = {name: {"color": looks[name][0], "linestyle": dash} for name, dash in zip(looks, dashes, strict=True)}
    panels = {
        f"after {k} trials": {name: curves.regret[..., k - 1] for name, curves in scores.curves.items()}
        for k in summary["checkpoints"]
    }
    return [
        _trials(scores, lines, folder / "regret_by_trials.png"),
        _seconds(scores, lines, folder / "regret_by_seconds.png"),
        profiles(panels, lines, min(2, len(panels)), 5, folder / "profiles.png"),
        _improvement(scores, summary, reference, folder / "improvement.png"),
    ]


def _bands(lines: dict[str, dict[str, Any]], x: np.ndarray, curves: dict[str, np.ndarray]) -> tuple[plt.Figure, plt.Axes]:
    """Draw interquartile means of curves [tasks, seeds, points], with intervals if there are few; return (figure, axes)."""
    points = {"linewidth": 1.6, "markevery": max(1, len(x) // 8)}
    marked = {name: {**lines[name], **points, "marker": marker} for name, (_, marker) in style.look(list(curves)).items()}
    return bands(x, curves, marked, False, 0.12 if len(curves) <= MOST_BANDS else 0.0)


def _trials(scores: Scores, lines: dict[str, dict[str, Any]], path: Path) -> str:
    x = np.unique(np.geomspace(1, scores.chance.shape[1], POINTS).astype(int))
    figure, axes = _bands(lines, x, {name: curves.regret[..., x - 1] for name, curves in scores.curves.items()})
    if np.isfinite(scores.chance).all():
        zero = np.array([statistics.interquartile_best(scores.regrets, int(k)) for k in x])
        axes.plot(x, 100 * zero, color=style.INK, linestyle=DASHES, linewidth=1.3, label="drawing at random")
    return regret_figure(figure, axes, "trials (different kernels)", path)


def _seconds(scores: Scores, lines: dict[str, dict[str, Any]], path: Path) -> str:
    ends = np.concatenate([c.elapsed[..., (0, -1)].reshape(-1, 2) for c in scores.curves.values()])
    x = np.geomspace(max(1e-3, float(np.quantile(ends[:, 0], 0.5))), float(ends[:, 1].max()), POINTS)
    figure, axes = _bands(lines, x, {name: at_seconds(curves, x) for name, curves in scores.curves.items()})
    return regret_figure(figure, axes, "seconds of search and recorded measurement", path)


def at_seconds(curves: Curves, x: np.ndarray) -> np.ndarray:
    """Return the regret of the best program so far at the times `x`, float64 [tasks, seeds, times].

    Until its first trial ends, a search has the largest regret that any curve of the task begins with.
    """
    tasks, seeds, _ = curves.regret.shape
    found = np.empty((tasks, seeds, len(x)))
    for i, j in np.ndindex(tasks, seeds):
        done = np.searchsorted(curves.elapsed[i, j], x, side="right")
        found[i, j] = np.where(done > 0, curves.regret[i, j, np.maximum(done - 1, 0)], curves.regret[i, :, 0].max())
    return found


def _improvement(scores: Scores, summary: dict[str, Any], reference: str, path: Path) -> str:
    names = [name for name in scores.strategies if reference in summary["strategies"][name].get("over", {})]
    checkpoints = summary["checkpoints"]
    figure, axes = plt.subplots(figsize=(7.0, 1.2 + 0.2 * len(names) * (len(checkpoints) + 1)))
    shades = plt.get_cmap("viridis")(np.linspace(0.1, 0.85, len(checkpoints)))
    for row, name in enumerate(names):
        for k, value in enumerate(summary["strategies"][name]["over"][reference]):
            y = row * (len(checkpoints) + 1) + k
            axes.plot([value["improves_low"], value["improves_high"]], [y, y], color=shades[k], linewidth=2.2, alpha=0.6)
            label = f"after {checkpoints[k]} trials" if row == 0 else None
            axes.plot(value["improves"], y, "o", color=shades[k], markersize=5.5, markeredgecolor="white", label=label)
    axes.axvline(0.5, color=style.INK, linestyle=DASHES, linewidth=1.1, zorder=1)
    axes.set_yticks([row * (len(checkpoints) + 1) + (len(checkpoints) - 1) / 2 for row in range(len(names))], names)
    axes.set_ylim(max(1, len(names)) * (len(checkpoints) + 1) - 1.0, -1.0)
    axes.set_xlim(0, 1)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.set_xlabel(f"probability of a lower regret than {reference}")
    return with_legend(figure, axes, path) if names else style.save(figure, path)


# The page of a study of searches, and its main table.

CHANCE = "drawing at random"
SOURCES = {
    Stamp.REPLICATED: (
        "Replicated: measured, read from tables.", "the best of the task; zero for kernels that cannot be told from it"
    ),
    Stamp.PREDICTED: (
        "Predicted: latencies of the model; nothing was timed.", "the fastest that any search of this study found"
    ),
}  # fmt: skip
"""Stamp (origin of the numbers) -> what the page says about the times and about the reference of the regrets."""


def markdown(summary: dict[str, Any], figures: list[str]) -> str:
    """Return the results page as Markdown text."""
    tasks, seeds, (source, best) = summary["tasks"], summary["seeds"], SOURCES[summary["stamp"]]
    chance = f"{CHANCE.capitalize()}: uniform draws of kernels without replacement, exactly. " if summary["chance"] else ""
    after = [f"after {k}" for k in summary["checkpoints"]]
    lines = [
        "# Strategies compared", "",
        f"Hardware {summary['hardware']} ({summary['device']}), space {summary['space']}, {len(tasks)} tasks, "
        f"{len(seeds)} seeds, {summary['trials']} trials a search. {source} "
        f"Fingerprint {summary['fingerprint']}. {summary['date']}.", "",
        f"Regret is log(T / T*) of the best kernel so far, T* being {best}. Interquartile means "
        f"over tasks and seeds, in brackets {LEVEL} intervals of a bootstrap that draws tasks, and "
        f"seeds within tasks. A search that ends early keeps its last kernel. {chance}"
        "Trials, model evaluations, and overhead (wall time of a search outside of measuring) "
        "are means over the searches; training was done beforehand.", "",
        *sheet(summary).markdown(), "",
    ]  # fmt: skip
    others = (line.get("over", {}) for line in summary["strategies"].values())
    for name in dict.fromkeys(name for over in others for name in over):
        lines += _differences(summary, name, after)
    if summary["hypotheses"]:
        rows = [
            (name, said.get("beside", summary["reference"]), f"{said['direction']}: {said['because']}", *said["found"])
            for name, said in summary["hypotheses"].items()
        ]
        head = ("variant", "against", "expected", *after)
        lines += ["## Hypotheses", "", "Written down before the run.", "", *table(head, rows), ""]
    lines += ["## Tasks", "", *table(("operator", "part of the split", "kernels"), [
        (task["operator"], task["part"], str(task["kernels"])) for task in tasks
    ])]  # fmt: skip
    lines += [f"\nLeft out: {name}: {why}" for name, why in summary["broken"].items()]
    return page(lines, figures)


def sheet(summary: dict[str, Any]) -> Sheet:
    """Return the table of regrets: strategies by regret at the last checkpoint, then a row for random draws if it is known."""
    head = ("strategy", *(f"regret after {k}" for k in summary["checkpoints"]), "trials", "evaluations", "overhead", "training")
    lines = sorted(summary["strategies"].items(), key=lambda item: item[1]["regret"][-1]["mean"])
    rows: list[tuple[Given, ...]] = [
        (
            name, *map(percent_interval, line["regret"]), Cell(f"{line['trials']:.0f}", (line["trials"],)),
            count(line["evaluations"]), seconds(line["overhead_s"]), seconds(line["training_s"]),
        )
        for name, line in lines
    ]  # fmt: skip
    if summary["chance"]:
        rows.append((CHANCE, *map(percent, summary["chance"]), "-", "-", "-", "-"))
    broken = (f"left out: {name}: {why}" for name, why in summary["broken"].items())
    return Sheet.of("regret after so many trials", head, rows, broken)


def _differences(summary: dict[str, Any], other: str, after: list[str]) -> list[str]:
    lines = {name: line["over"][other] for name, line in summary["strategies"].items() if other in line.get("over", {})}
    chance = other == "chance"
    rows = [
        (name, *(difference(value) + ("" if chance else f", {value['improves']:.0%}") for value in of))
        for name, of in lines.items()
    ]
    least = max(of[0]["p_least"] for of in lines.values())
    return [
        f"## Against {CHANCE if chance else other}", "",
        "Mean difference of regret with the same task and seed (negative is better), its interval; p of a sign-flip test on "
        "the tasks' means (of a single task, on its seeds), adjusted by Holm over the strategies"
        + (", against the expectation." if chance else "; the probability that a search of this strategy is ahead.")
        + f" With so few tasks and so many strategies no p is below {p_text(least)}.",
        "", *table(("strategy", *after), rows), "",
    ]  # fmt: skip


class SearchStudy(Study[Plan, Scores]):
    """Study of strategies on recorded tasks, with a job for every search."""

    jobs: Jobs
    """Jobs in the folder, open as long as this process holds the folder's lock."""

    def __init__(self, config: DictConfig) -> None:
        """Resolve a configuration (conf/study.yaml); ValueError names an invalid setting."""
        self.settings = settings = settings_of(config, "study")
        if not isinstance(settings.backend, (RecordedBackend, AnalyticBackend)):
            raise ValueError(
                f"backend {settings.backend.name!r}: a study reads recorded tables or asks the model; kernels run in "
                "experiments.compare"
            )
        super().__init__(Plan(settings.config))
        plain: Any = settings.config["study"]
        self.said: dict[str, Any] = plain
        trials, names = settings.jobs[0].budget.trials, {job.strategy for job in settings.jobs}
        checkpoints = tuple(sorted(set(plain["checkpoints"])))
        if trials is None:
            raise ValueError("budget.trials is null: a study compares searches of so many trials")
        if not checkpoints or not all(isinstance(k, int) and k > 0 for k in checkpoints):
            raise ValueError(f"study.checkpoints {plain['checkpoints']!r}: expected numbers of trials")
        if plain["reference"] not in names:
            hint = near(plain["reference"], names)
            raise ValueError(f"study.reference {plain['reference']!r}: expected one of the strategies, {sorted(names)}{hint}")
        check_whole(plain, 1, "workers", "resamples", of="study.")
        self.checkpoints = tuple(k for k in checkpoints if k <= trials) or (trials,)
        self.hypotheses: dict[str, dict[str, str]] = plain["hypotheses"] or {}
        """Expectations written before the run, by strategy: a `direction`, a reason `because`, and the strategy `beside`
        with which it is compared instead of the reference."""

    @property
    def output(self) -> Path:
        """Folder of all files of the study, by default named after the jobs."""
        return self.settings.output

    def claim(self) -> closing[Any]:
        """Open the jobs of the folder, which locks it; return a context manager that closes them."""
        self.jobs = Jobs(self.settings.backend, self.settings.store, self.output)
        return closing(self.jobs)

    def run(self, console: Console) -> Scores:
        """Run the missing searches and return the scores of all searches."""
        wanted = self.settings.jobs
        outcomes = {job.key: found for job in wanted if (found := self.jobs.finished(job)) is not None}
        if outcomes:
            console.print(f"{len(outcomes)} of {len(wanted)} searches were done before.")
        missing = [job for job in wanted if job.key not in outcomes]
        for job, outcome in with_bar(console, "searches", made(self.jobs, missing, self.said["workers"]), len(missing)):
            outcomes[job.key] = outcome
            if outcome.status != DONE:
                name = f"{job.strategy} seed {job.seed} on {job.operator}"
                console.print(f"[yellow]{outcome.status}[/] {escape(name)}: {escape(outcome.error)}", highlight=False)
        return scores_of(self.settings, outcomes, self.jobs.results)

    def summarise(self, found: Scores) -> dict[str, Any]:
        """Write study_values.jsonl with a row for each search, and return the summary."""
        values = [json.dumps(value) for value in found.values(self.checkpoints, self.said["reference"])]
        write_text(self.output / "study_values.jsonl", "\n".join(values) + "\n")
        return summarise(found, self.checkpoints, self.said["reference"], self.said["resamples"], self.hypotheses)

    def draw(self, found: Scores, summary: dict[str, Any]) -> list[str]:
        """Draw all figures and return the file names; none if no strategy has completed all its searches."""
        return draw(found, summary, summary["reference"], self.output) if found.strategies else []

    markdown, sheet = staticmethod(markdown), staticmethod(sheet)


main = study_command("study", SearchStudy)
