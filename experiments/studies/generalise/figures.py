"""The figures of a study of generalisation: regret against evaluations and processor time, and profiles of regret."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from experiments.common import style
from experiments.statistics import statistics
from experiments.studies.generalise.scores import Regrets
from experiments.studies.intervals import iqm
from experiments.studies.search.figures import profile_axes, profile_thresholds, regret_figure

RESAMPLES = 400
POINTS = 40
FIRST = 8
"""Evaluations at which the figure begins."""
SHORTEST = 1e-3
"""Seconds at which the other one does."""
PAPER = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8}
"""Behind a label, so that it can be read over lines."""
LINES = ("-", "--", ":", "-.")


def draw(study: Regrets, folder: Path) -> list[str]:
    """Write all figures; returns the names of the files."""
    with plt.rc_context(style.RC):
        return [
            _evaluations(study, folder / "regret_by_evaluations.png"),
            _seconds(study, folder / "regret_by_seconds.png"),
            *(_profiles(study, name, folder / f"profiles_{name}.png") for name in (p.name for p in study.plan.policies)),
        ]


def _band(axes: Axes, x: np.ndarray, values: np.ndarray, colour: str, marker: str, name: str, learned: bool) -> None:
    """Interquartile mean of regrets [tasks, seeds, points] with its interval; what is learned has the broader line."""
    low, high = statistics.bootstrap(iqm, values, resamples=RESAMPLES, crossed=True)
    axes.fill_between(x, 100 * low, 100 * high, color=colour, alpha=0.13, linewidth=0)
    axes.plot(
        x, 100 * iqm(values), color=colour, linewidth=2.4 if learned else 1.4, marker=marker, markevery=5,
        markersize=4.5, label=name, zorder=3 if learned else 2,
    )  # fmt: skip


def _evaluations(study: Regrets, path: Path) -> str:
    """Regret against evaluations; the rounds of policies are marked."""
    x = np.unique(np.geomspace(min(FIRST, study.plan.evaluations), study.plan.evaluations, POINTS).astype(int))
    figure, axes = plt.subplots(figsize=(7.4, 4.6))
    looks = style.look(study.names)
    learned = {policy.name: policy for policy in study.plan.policies}
    for name in study.names:
        _band(axes, x, study.regret(name, x), *looks[name], name, name in learned)
    for name, policy in learned.items():
        for label, search in study.rounds(policy).items():
            evaluations, regret, _ = study.first(search)
            at = float(np.exp(np.log(evaluations).mean())), 100 * float(statistics.interquartile_mean(regret))
            axes.plot(*at, "*", color=looks[name][0], markersize=13, markeredgecolor="white", zorder=4)
            axes.annotate(label, at, xytext=(6, 7), textcoords="offset points", fontsize=8, color=looks[name][0], bbox=PAPER)
    return regret_figure(figure, axes, "evaluations of the model", path)


def _seconds(study: Regrets, path: Path) -> str:
    """Regret against processor seconds of construction."""
    x = np.geomspace(SHORTEST, study.plan.longest, POINTS)
    figure, axes = plt.subplots(figsize=(7.4, 4.6))
    looks = style.look(study.names)
    learned = {policy.name for policy in study.plan.policies}
    for name in study.names:
        _band(axes, x, study.regret_within(name, x.tolist()), *looks[name], name, name in learned)
    return regret_figure(figure, axes, "processor seconds of construction, one thread (training left out)", path)


def _profiles(study: Regrets, name: str, path: Path) -> str:
    """Share of searches within a regret, a panel for each round of a policy, all stopped at its evaluations."""
    learned = next(policy for policy in study.plan.policies if policy.name == name)
    thresholds = profile_thresholds()
    rounds = study.rounds(learned)
    looks = style.look([name, *study.plan.strategies])
    figure, grid = plt.subplots(1, len(rounds), figsize=(4.4 * len(rounds), 3.6), squeeze=False, layout="constrained")
    for axes, (label, search) in zip(grid.flat, rounds.items(), strict=True):
        evaluations, regret, _ = study.first(search)
        scores = {name: regret} | {s: study.regret(s, evaluations[..., None])[..., 0] for s in study.plan.strategies}
        for number, (of, values) in enumerate(scores.items()):
            share = statistics.performance_profile(values, thresholds)
            axes.step(
                100 * thresholds, share, where="post", color=looks[of][0], linewidth=2.4 if of == name else 1.4,
                linestyle="-" if of == name else LINES[number % len(LINES)], label=of,
            )  # fmt: skip
        profile_axes(axes, f"{label} ({evaluations.mean():,.0f} evaluations)")
    grid[0, 0].set_ylabel("of the searches")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=min(4, len(looks)))
    return style.save(figure, path)
