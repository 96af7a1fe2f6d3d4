"""The study of trained policies and search with the model on operators that no policy was trained on, with known optima.

Run it by `python -m experiments generalise` (conf/generalise.yaml, docs/generalisation.md). Only the searches themselves are
timed. A row of lines.jsonl stays valid while fingerprint, hyperparameters and policy stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console

from agents.runs.anytime import Search
from experiments.common import style
from experiments.statistics import statistics
from experiments.studies.figures import BROAD, LINES, THIN, bands, profiles, regret_figure
from experiments.studies.generalise import report
from experiments.studies.generalise.optima import optima
from experiments.studies.generalise.plan import Contender, GeneralisePlan, plan_of, searches
from experiments.studies.generalise.policies import Trained, train_missing
from experiments.studies.generalise.scores import Regrets, Task
from experiments.studies.generalise.summary import summarise
from experiments.studies.study import Study, study_command

POINTS = 40
FIRST, SHORTEST = 8, 1e-3
"""Evaluations and seconds at which the figures begin."""
PAPER = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8}
"""Style of the box behind a label."""


def _bands(study: Regrets, x: np.ndarray, regret: Callable[[str, np.ndarray], np.ndarray]) -> tuple[Figure, Axes]:
    """Draw the bands of all searches, those of policies with broader lines; return (figure, axes)."""
    learned = {policy.name for policy in study.plan.policies}
    lines = {
        name: {"color": colour, "marker": marker, "markevery": 5}
        | ({"linewidth": BROAD, "zorder": 3} if name in learned else {"linewidth": THIN, "zorder": 2})
        for name, (colour, marker) in style.look(study.names).items()
    }
    return bands(x, {name: regret(name, x) for name in lines}, lines, True, 0.13)


def _evaluations(study: Regrets, path: Path) -> str:
    """Draw regret over evaluations, with marks for the policies' rounds; return the file name."""
    x = np.unique(np.geomspace(min(FIRST, study.plan.evaluations), study.plan.evaluations, POINTS).astype(int))
    figure, axes = _bands(study, x, study.regret)
    looks = style.look(study.names)
    for policy in study.plan.policies:
        colour, _ = looks[policy.name]
        for label, search in study.rounds(policy).items():
            evaluations, regret, _ = study.first(search)
            at = float(np.exp(np.log(evaluations).mean())), 100 * float(statistics.interquartile_mean(regret))
            axes.plot(*at, "*", color=colour, markersize=13, markeredgecolor="white", zorder=4)
            axes.annotate(label, at, xytext=(6, 7), textcoords="offset points", fontsize=8, color=colour, bbox=PAPER)
    return regret_figure(figure, axes, "evaluations of the model", path)


def _seconds(study: Regrets, path: Path) -> str:
    """Draw regret over processor seconds of construction; return the file name."""
    x = np.geomspace(SHORTEST, study.plan.longest, POINTS)
    figure, axes = _bands(study, x, study.regret_within)
    return regret_figure(figure, axes, "processor seconds of construction, one thread (training left out)", path)


def _profiles(study: Regrets, learned: Contender, path: Path) -> str:
    """Draw performance profiles after each round of a policy, all searches stopped at its evaluations; return the file name."""
    names = [learned.name, *study.plan.strategies]
    lines = {
        name: {"color": colour, "linewidth": THIN if number else BROAD, "linestyle": LINES[number % len(LINES)]}
        for number, (name, (colour, _)) in enumerate(style.look(names).items())
    }
    panels = {}
    for label, search in study.rounds(learned).items():
        evaluations, regret, _ = study.first(search)
        scores = {name: study.regret(name, evaluations[..., None])[..., 0] for name in study.plan.strategies}
        panels[f"{label} ({evaluations.mean():,.0f} evaluations)"] = {learned.name: regret, **scores}
    return profiles(panels, lines, len(panels), 4, path)


Wanted = Callable[[GeneralisePlan, Sequence[str], Any], list[Search]]


def regrets_of(
    study: Study[GeneralisePlan, Any], plan: GeneralisePlan, policies: Mapping[str, Sequence[Trained]], wanted: Wanted,
    console: Console,
) -> Regrets:  # fmt: skip
    """Certify optima that do not ship, run the missing searches and return the regrets.

    New certificates go to the study's folder. ValueError if no optimum is known.
    """
    folder, nodes = study.output, plan.config["nodes"]
    with console.status(f"certified optima on {plan.hardware}"):
        known, unknown = optima(plan.operators, plan.hardware, plan.space, folder, plan.processes, nodes)
    if not known:
        raise ValueError(f"no optimum is certified on {plan.hardware}: {unknown}; the study needs one task with an optimum")
    rows = study.lines(wanted(plan, list(known), policies), console)
    return Regrets(plan, [Task(op, known[str(op)]) for op in plan.operators if str(op) in known], rows, policies, unknown)


class Generalisation(Study[GeneralisePlan, Regrets]):
    """The study of policies and searches on unseen operators."""

    def run(self, console: Console) -> Regrets:
        """Train missing policies, certify missing optima, run missing searches, and return the regrets."""
        plan = self.plan
        policies: dict[str, Sequence[Trained]] = {}
        for learned in plan.policies:
            with console.status(f"policies {learned.name}: training what is missing"):
                policies[learned.name] = train_missing(
                    learned.folder, plan.seeds, plan.hardware, plan.space, learned.train, plan.processes, plan.split
                )
        return regrets_of(self, plan, policies, searches, console)

    def summarise(self, found: Regrets) -> dict[str, Any]:
        """Summary of the regrets, by `summary.summarise`."""
        return summarise(found)

    def draw(self, found: Regrets, summary: dict[str, Any]) -> list[str]:
        """Draw curves and profiles; return the file names."""
        folder = self.output
        return [
            _evaluations(found, folder / "regret_by_evaluations.png"),
            _seconds(found, folder / "regret_by_seconds.png"),
            *(_profiles(found, policy, folder / f"profiles_{policy.name}.png") for policy in self.plan.policies),
        ]

    markdown, sheet = staticmethod(report.markdown), staticmethod(report.sheet)


main = study_command("generalise", lambda config: Generalisation(plan_of(config)))
