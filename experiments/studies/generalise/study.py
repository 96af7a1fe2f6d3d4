"""The study of trained policies and of search with the model, on operators with known optima that no policy was trained on.

Run it by `python -m experiments generalise` (conf/generalise.yaml, docs/generalisation.md). Only the searches themselves are
timed. A row of lines.jsonl stays valid while fingerprint, hyperparameters and policy stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console

from agents.runs.anytime import Search
from agents.runs.sheets.sheet import Sheet
from agents.runs.texts import interval_text, p_text, page, seconds_text, table
from experiments.common import statistics, style
from experiments.studies.generalise.plan import Contender, GeneralisePlan, Trained, plan_of, searches, train_missing
from experiments.studies.generalise.scores import Regrets, Task, optima, summarise
from experiments.studies.scores import BROAD, LINES, THIN, bands, interval_sheet, intervals, profiles, regret_figure
from experiments.studies.study import Study, study_command
from gensor_gym.measure.stats.intervals import LEVEL

# The page of a study of generalisation, and its main table.

PARTS = {
    "test": "The test part: no operator of it, nor another of its group (class and rounded log2 of every extent), "
    "was trained, tuned or fitted on. Operators of about the same size across a group's border were (docs/design.md, splits).",
    "train": "The train part, on which policies learn: no result on unseen operators.",
    "validation": "The validation part, on which values are chosen: for development, no result on unseen operators.",
}


def markdown(summary: dict[str, Any], figures: list[str]) -> str:
    """Return the results page as Markdown text."""
    tasks, seeds, ordered = summary["tasks"], summary["seeds"], _ordered(summary)
    fewer = {name: count for name, count in summary["begun"].items() if count < len(seeds)}
    told = ", ".join(f"{name} {count}" for name, count in fewer.items())
    paired = f"; some were begun with fewer seeds ({told}), each paired with several policies in turn" if fewer else ""
    visited, certified = (median(task[name] for task in tasks) for name in ("visited", "certified_s"))
    lines = [
        "# Policies on operators they have not seen", "",
        f"Model of {summary['hardware']}, space {summary['space']}, {len(tasks)} operators, {len(seeds)} training seeds. "
        f"Split {summary['split']}. {PARTS.get(summary['part'], 'Operators chosen by hand.')} Predicted: latencies of the model; "
        f"nothing was timed but the searches. Fingerprint {summary['fingerprint']}. {summary['date']}.", "",
        "Regret is log(T / T*), T* being the certified optimum of the operator's space. Evaluations are those of the model: "
        "of every program that a search, or a policy's environment, looks at. Interquartile means (IQM) over operators and "
        f"seeds; in brackets {LEVEL} intervals of a bootstrap over operators and training seeds, a seed being the same policy on "
        f"all operators. Seed i of a search is paired with policy i{paired}. Before its first program a search has the "
        "unscheduled one.", "",
        "## Regret by number of evaluations", "",
        *_by_count("", summary).markdown(), "",
        f"The optimum itself was proved after {visited:,.0f} nodes and {certified:.1f} processor seconds (medians).", "",
        "## Regret after so many seconds", "",
        f"Processor seconds of one thread, {summary['processes']} searches at a time: what a search takes by the clock where "
        "nothing else runs. Loading and compiling are left out, training as well (see below). Every search goes on to "
        "the last of these "
        "times, begun again where it ends sooner (but for those that would construct the same again: `nearest` and `certifier`). "
        "Tuned values are those chosen for the least number of seconds that is not below.", "",
        *intervals(("strategy", *map(seconds_text, summary["seconds"])), {name: line["within"] for name, line in ordered}), "",
    ]  # fmt: skip
    for name, policy in summary["policies"].items():
        lines += _policy(summary, name, policy)
    rows = [
        (f"`{task['operator']}`", task["part"], f"{task['optimum_s'] * 1e6:.3f}", f"{100 * task['unscheduled']:.0f} %")
        for task in tasks
    ]
    lines += ["## Operators", "", *table(("operator", "part", "optimum, us", "regret of the unscheduled program"), rows), ""]
    if summary["left_out"]:
        out = ", ".join(f"`{text}`" for text in summary["left_out"])
        lines += [f"Left out: {len(summary['left_out'])} elementwise maps, whose optima are not certified: {out}.", ""]
    lines += [f"Left out: `{text}`: {why}\n" for text, why in summary["unknown"].items()]
    return page(lines, figures)


def sheet(summary: dict[str, Any]) -> Sheet:
    """Return the table of regrets by evaluations, with notes on the policies' rounds."""
    said = []
    for name, policy in summary["policies"].items():
        for label, one in policy["rounds"].items():
            beside = one["beside"][policy["reference"]]
            said.append(
                f"{name}, {label}: {one['evaluations']:.0f} evaluations, IQM regret {100 * one['iqm']['mean']:.1f} %, mean "
                f"{100 * one['mean']['mean']:.1f} %; {policy['reference']} then {100 * beside['iqm']['mean']:.1f} %, difference "
                f"{interval_text(beside['over'], 1, sign=True)}"
            )
    return _by_count("IQM regret by number of evaluations", summary, said)


def _by_count(title: str, summary: dict[str, Any], notes: Sequence[str] = ()) -> Sheet:
    head = ("strategy", *(f"{count:,}" for count in summary["checkpoints"]))
    return interval_sheet(title, head, {name: line["regret"] for name, line in _ordered(summary)}, notes)


def _ordered(summary: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(summary["strategies"].items(), key=lambda item: item[1]["regret"][-1]["mean"])


def _policy(summary: dict[str, Any], name: str, policy: dict[str, Any]) -> list[str]:
    rounds = policy["rounds"]
    lines = [
        f"## {name}", "",
        f"Training: {mean(policy['training_s']):.0f} processor seconds on one thread for each of "
        f"{len(policy['training_s'])} seeds "
        f"(the longest {max(policy['training_s']):.0f} s), {mean(policy['training_steps']):,.0f} steps.", "",
        *table(("round", "evaluations", "seconds", "IQM regret", "mean regret", "within 5 %", "optimal"), [
            (
                label, f"{one['evaluations']:,.0f}", seconds_text(one["seconds"]), interval_text(one["iqm"], 1),
                interval_text(one["mean"], 1), f"{one['near']:.0%}", f"{one['optimal']:.0%}",
            )
            for label, one in rounds.items()
        ]), "",
        *(f"Cut at {summary['evaluations']:,} evaluations, of the round \"{label}\": {one['cut']}.\n"
          for label, one in rounds.items() if one["cut"]),
    ]  # fmt: skip
    for label, one in rounds.items():
        lines += _beside(label, one)
    *_, (label, last) = rounds.items()
    rows = [
        (
            group["group"], str(group["tasks"]), f"{100 * group['ours']:.1f} %", f"{100 * group['theirs']:.1f} %",
            interval_text(group["over"], 1, sign=True), f"{group['near']:.0%}",
        )
        for group in last["groups"]
    ]  # fmt: skip
    return [
        *lines, f"### {label.capitalize()}, by operator class and size", "",
        "Mean regrets at the same evaluations. Thirds are by points of the loops.", "",
        *table(("group", "operators", "policy", policy["reference"], "difference", "within 5 %"), rows), "",
        *break_even(policy["break_even"]),
    ]  # fmt: skip


def _beside(label: str, one: dict[str, Any]) -> list[str]:
    rows = [
        (
            name, interval_text(other["iqm"], 1), interval_text(other["iqm_over"], 1, sign=True), f"{100 * other['mean']:.1f} %",
            interval_text(other["over"], 1, sign=True), p_text(other["over"]["p_holm"]), f"{other['over']['improves']:.0%}",
        )
        for name, other in one["beside"].items()
    ]  # fmt: skip
    least = next(iter(one["beside"].values()))["over"]["p_least"]
    return [
        f"### {label.capitalize()}, and searches stopped after as many evaluations", "",
        "On every operator and with every seed the search is stopped at exactly the evaluations that the policy took there. "
        "Differences are paired, policy minus search, in IQM and mean regret; negative means that the policy is better. p: "
        "sign-flip test on the operators' means, adjusted by Holm over the strategies (the least p possible here is "
        f"{p_text(least)}). Ahead: chance that the policy is better on an operator.", "",
        *table(("search", "IQM regret", "policy minus search", "mean regret", "policy minus search", "p", "ahead"), rows), "",
    ]  # fmt: skip


def break_even(found: dict[str, Any]) -> list[str]:
    """Return the lines that compare the cost of training with that of the first search to reach the same regret."""
    rows = []
    for unit in ("evaluations", "seconds"):
        one = found[unit]
        text = seconds_text if unit == "seconds" else lambda value: f"{value:,.0f}"
        theirs = "none in this study" if one["theirs"] is None else f"{text(one['theirs'])} (`{one['who']}`)"
        never = "not known" if one["theirs"] is None else "never"
        even = never if one["operators"] is None else f"at least {one['operators']:,.0f}"
        rows.append((unit, text(one["ours"]), theirs, text(one["training"]), even))
    return [
        "### What training costs", "",
        f"What an operator costs until the regret is at most {100 * found['regret']:.1f} %, the policy's IQM, and the operators "
        "below which a policy, its training included, has cost more than the search that is there first: lower bounds. "
        "Training's evaluations are taken to be steps of the environment; what `nearest` needs, the proofs of its optima, is not "
        "counted.", "",
        *table(("currency", "policy", "first search there", "training", "operators before it can have paid"), rows), "",
    ]  # fmt: skip


POINTS = 40
FIRST, SHORTEST = 8, 1e-3
"""Numbers of evaluations and of seconds at which the figures begin."""
PAPER = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8}
"""Style of the box behind a label in a figure."""


def _bands(study: Regrets, x: np.ndarray, regret: Callable[[str, np.ndarray], np.ndarray]) -> tuple[Figure, Axes]:
    learned = {policy.name for policy in study.plan.policies}
    lines = {
        name: {"color": colour, "marker": marker, "markevery": 5}
        | ({"linewidth": BROAD, "zorder": 3} if name in learned else {"linewidth": THIN, "zorder": 2})
        for name, (colour, marker) in style.look(study.names).items()
    }
    return bands(x, {name: regret(name, x) for name in lines}, lines, True, 0.13)


def _evaluations(study: Regrets, path: Path) -> str:
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
    x = np.geomspace(SHORTEST, study.plan.longest, POINTS)
    figure, axes = _bands(study, x, study.regret_within)
    return regret_figure(figure, axes, "processor seconds of construction, one thread (training left out)", path)


def _profiles(study: Regrets, learned: Contender, path: Path) -> str:
    """Draw a policy's performance profile for each of its rounds, with all searches stopped after as many evaluations."""
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
    """Certify the optima that do not ship, run the missing searches, and return the regrets.

    `wanted` makes the searches from the plan, the tasks and the policies. New certificates go to the study's folder. Raise
    ValueError if no optimum is known.
    """
    folder, nodes = study.output, plan.config["nodes"]
    with console.status(f"certified optima on {plan.hardware}"):
        known, unknown = optima(plan.operators, plan.hardware, plan.space, folder, plan.processes, nodes)
    if not known:
        raise ValueError(f"no optimum is certified on {plan.hardware}: {unknown}; the study needs one task with an optimum")
    rows = study.lines(wanted(plan, list(known), policies), console)
    return Regrets(plan, [Task(op, known[str(op)]) for op in plan.operators if str(op) in known], rows, policies, unknown)


class Generalisation(Study[GeneralisePlan, Regrets]):
    """Study of trained policies and of searches on operators that no policy was trained on."""

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
        """Return the summary of the regrets, by `scores.summarise`."""
        return summarise(found)

    def draw(self, found: Regrets, summary: dict[str, Any]) -> list[str]:
        """Draw curves of regret and performance profiles; return the file names."""
        folder = self.output
        return [
            _evaluations(found, folder / "regret_by_evaluations.png"),
            _seconds(found, folder / "regret_by_seconds.png"),
            *(_profiles(found, policy, folder / f"profiles_{policy.name}.png") for policy in self.plan.policies),
        ]

    markdown, sheet = staticmethod(markdown), staticmethod(sheet)


main = study_command("generalise", lambda config: Generalisation(plan_of(config)))
