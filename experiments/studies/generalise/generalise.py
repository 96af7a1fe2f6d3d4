"""Zero-shot: trained policies beside search by the model on operators that nothing was trained on, the optimum known.

`python -m experiments.generalise` (conf/generalise.yaml, docs/generalisation.md). Nothing is timed but the searches themselves.
Every search is a line of lines.jsonl, kept as soon as it is there: a command that was stopped goes on where it was. A line stays
valid as long as fingerprint, hyperparameters and policy are the same; delete the file to have all of them made anew.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import hydra
from omegaconf import DictConfig
from rich.console import Console

from experiments.common.arguments import CONF
from experiments.common.commands import command_line, refusals, say_where
from experiments.common.folders import make_folder
from experiments.common.journal import Journal
from experiments.common.lines import run_missing
from experiments.common.optima import optima
from experiments.common.results import write_summary
from experiments.studies.generalise import report as generalise_report
from experiments.studies.generalise.plan import Plan, plan_of, searches
from experiments.studies.generalise.policies import Trained, train_missing
from experiments.studies.generalise.scores import Study, summarise, task_of
from gensor_gym.exact import Certificate


def certified(
    texts: Sequence[str], hardware: str, plan: Plan, console: Console
) -> tuple[dict[str, Certificate], dict[str, str]]:
    """Optima of operators on a hardware, certified into the study's folder where they do not ship, and why others have none."""
    with console.status(f"certified optima on {hardware}"):
        return optima(texts, hardware, plan.space, plan.output, plan.processes, plan.nodes)


def study(plan: Plan, console: Console) -> dict[str, Any]:
    """Train, certify, search what is missing; write summary, page and figures; returns the summary."""
    make_folder(plan.output)
    policies: dict[str, Sequence[Trained]] = {}
    for learned in plan.policies:
        with console.status(f"policies {learned.name}: training what is missing"):
            policies[learned.name] = train_missing(
                learned.folder, plan.seeds, plan.hardware, plan.space, learned.train, plan.processes
            )
    known, unknown = certified([str(op) for op in plan.operators], plan.hardware, plan, console)
    if not known:
        raise ValueError(f"no optimum is certified: {unknown}; the study needs one task with an optimum at least")
    rows = run_missing(searches(plan, list(known), policies), Journal(plan.output / "lines.jsonl"), plan.processes, console)
    tasks = [task_of(op, known[str(op)]) for op in plan.operators if str(op) in known]
    with console.status("summary and figures"):
        found = Study(plan, tasks, rows, policies)
        summary = summarise(found, unknown)
        _write(found, summary)
    return summary


def _write(found: Study, summary: dict[str, Any]) -> None:
    """summary.json, figures, summary.md."""
    plan, names = found.plan, []
    if plan.figures:
        from experiments.studies.generalise import figures as generalise_figures

        names = generalise_figures.draw(found, plan.output)
    write_summary(plan.output, {**summary, "config": plan.config}, generalise_report.markdown(summary, names))


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="generalise")
def run(config: DictConfig) -> None:
    """One configuration."""
    console, begin = Console(), time.perf_counter()
    with refusals(console, ValueError, RuntimeError, OSError):
        plan = plan_of(config)
        summary = study(plan, console)
    generalise_report.show(console, summary)
    say_where(console, begin, plan.output)


def main() -> None:
    """Command line."""
    command_line(run)
