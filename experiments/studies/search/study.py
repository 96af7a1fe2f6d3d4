"""Many strategies, recorded tasks and seeds in one run: `python -m experiments.study experiment=recorded`.

The budget is the session's, model evaluations are counted by the graph, every strategy starts from the same task and knows
nothing else, and each search has one thread. Everything is answered from tables whose best kernel is known, or by the model
(then against the best that any search found), so that what is compared is regret. A run that was stopped continues where it
was when the same command is given again.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from experiments.common.arguments import CONF
from experiments.common.commands import command_line, refusals, say_where
from experiments.common.jobs import DONE, Jobs, Outcome
from experiments.common.pool import attempts
from experiments.common.results import write_summary, write_text
from experiments.common.settings import Settings, settings_of
from experiments.studies.search import report as study_report
from experiments.studies.search.scores import Scores, scores_of, summarise
from gensor_gym.measure.analytic import AnalyticBackend
from gensor_gym.measure.records.backend import RecordedBackend


@dataclass(frozen=True)
class Plan:
    """A study: the searches, how many run at once, and what is said of them."""

    settings: Settings
    workers: int
    checkpoints: tuple[int, ...]
    """Trials after which regrets are stated."""
    reference: str
    """Strategy that all others are compared with."""
    resamples: int
    hypotheses: dict[str, dict[str, str]]
    """What was expected of a strategy, `direction` and `because`, written before the run, beside the reference or `beside`."""


def plan_of(config: DictConfig) -> Plan:
    """Resolve a configuration (conf/study.yaml); ValueError names what is wrong with it."""
    settings = settings_of(config, "study")
    if not isinstance(settings.backend, (RecordedBackend, AnalyticBackend)):
        raise ValueError(
            f"backend {settings.backend.name!r}: a study reads recorded tables or asks the model; kernels run in "
            "experiments.compare"
        )
    plain: dict[str, Any] = OmegaConf.to_container(config.study, resolve=True)  # type: ignore[assignment]
    trials, names = settings.jobs[0].budget.trials, {job.strategy for job in settings.jobs}
    checkpoints = tuple(sorted(set(plain["checkpoints"])))
    if trials is None:
        raise ValueError("budget.trials is null: a study compares searches of so many trials")
    if not checkpoints or not all(isinstance(k, int) and k > 0 for k in checkpoints):
        raise ValueError(f"study.checkpoints {plain['checkpoints']!r}: expected numbers of trials")
    if plain["reference"] not in names:
        raise ValueError(f"study.reference {plain['reference']!r}: expected one of the strategies, {sorted(names)}")
    for name in ("workers", "resamples"):
        if not isinstance(plain[name], int) or plain[name] < 1:
            raise ValueError(f"study.{name} {plain[name]!r}: expected a number, 1 or more")
    kept = tuple(k for k in checkpoints if k <= trials) or (trials,)
    return Plan(settings, plain["workers"], kept, plain["reference"], plain["resamples"], plain["hypotheses"] or {})


def study(plan: Plan, jobs: Jobs, console: Console) -> tuple[Scores, dict[str, Any]]:
    """Run what is not done yet, write everything, let go of the folder; returns the scores and their summary."""
    settings = plan.settings
    outcomes = {job.key: found for job in settings.jobs if (found := jobs.finished(job)) is not None}
    _search(plan, jobs, outcomes, console)
    with console.status("summary and figures"):
        scores = scores_of(settings, outcomes, jobs.results)
        summary = summarise(scores, plan.checkpoints, plan.reference, plan.resamples, plan.hypotheses)
        _write(plan, scores, summary)
    jobs.close()
    return scores, summary


def _search(plan: Plan, jobs: Jobs, outcomes: dict[str, Outcome], console: Console) -> None:
    """Run the jobs without an outcome; fills `outcomes`."""
    todo = [job for job in plan.settings.jobs if job.key not in outcomes]
    if len(outcomes):
        console.print(f"{len(outcomes)} of {len(plan.settings.jobs)} searches were done before.")
    if not todo:
        return
    columns = (SpinnerColumn(), TextColumn("searches"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(todo))
        for job, trials, outcome, trace in attempts(todo, plan.settings.backend, plan.workers):
            outcomes[job.key] = jobs.keep(job, trials, outcome, trace)
            name = f"{job.strategy} seed {job.seed} on {job.operator}"
            if outcome.status != DONE:
                console.print(f"[yellow]{outcome.status}[/] {name}: {outcomes[job.key].error}", highlight=False)
            progress.update(bar, advance=1, description=name)


def _write(plan: Plan, scores: Scores, summary: dict[str, Any]) -> None:
    """summary.json, study_values.jsonl (a line for each search), figures, summary.md."""
    folder = plan.settings.output
    names = []
    if plan.settings.figures and scores.strategies:
        from experiments.studies.search import figures as study_figures

        names = study_figures.draw(scores, summary, plan.reference, folder)
    values = [json.dumps(value) for value in scores.values(plan.checkpoints, plan.reference)]
    write_text(folder / "study_values.jsonl", "\n".join(values) + "\n")
    write_summary(folder, {**summary, "config": plan.settings.config}, study_report.markdown(summary, names))


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="study")
def run(config: DictConfig) -> None:
    """One configuration."""
    console = Console()
    begin = time.perf_counter()
    with refusals(console, ValueError):
        plan = plan_of(config)
        jobs = Jobs(plan.settings.backend, plan.settings.store, plan.settings.output)
        _, summary = study(plan, jobs, console)
    study_report.show(console, summary)
    say_where(console, begin, plan.settings.output)


def main() -> None:
    """Command line."""
    command_line(run)
