"""Policies trained on recordings of one real GPU, tested on others: `python -m experiments.transfer_recorded`.

conf/transfer_recorded.yaml, docs/generalisation.md. The recordings are complete spaces of a kernel, measured on several GPUs:
regret is to the best configuration of the tested one. Beside a policy trained on another GPU stand one trained on the tested
recording itself (it memorises: no result on an unseen device), one trained on all others, the order of other GPUs' times without
any learning, and plain searches, all at equal trials. Nothing is timed here. A command that was stopped goes on where it was.
"""

from __future__ import annotations

import time
from typing import Any

import hydra
from omegaconf import DictConfig
from rich.console import Console

from experiments.common.arguments import CONF
from experiments.common.commands import command_line, refusals, say_where
from experiments.common.folders import make_folder
from experiments.common.jobs import locked
from experiments.common.journal import Journal
from experiments.common.lines import run_missing, with_bar
from experiments.common.pool import side_by_side
from experiments.common.results import write_summary
from experiments.studies.transfer_recorded import report as transfer_recorded_report
from experiments.studies.transfer_recorded.plan import RecordedPlan, plan_of
from experiments.studies.transfer_recorded.scores import summarise
from experiments.studies.transfer_recorded.searches import search_recorded
from experiments.training.lessons import known_card, learn_at


def study(plan: RecordedPlan, console: Console) -> dict[str, Any]:
    """Train and search what is missing; write summary, page and figures; returns the summary."""
    kept, lessons = Journal(make_folder(plan.output) / "lines.jsonl"), plan.lessons()
    missing = [lesson for lesson in lessons if known_card(*lesson) is None]
    list(with_bar(console, "policies", side_by_side(learn_at, missing, plan.processes), len(missing)))
    cards = [card for lesson in lessons if (card := known_card(*lesson)) is not None]
    rows = run_missing(plan.searches(), kept, plan.processes, console, search_recorded)
    summary = summarise(plan, rows, cards)
    names = transfer_recorded_report.draw(summary, plan.output) if plan.figures else []
    write_summary(plan.output, {**summary, "config": plan.config}, transfer_recorded_report.markdown(summary, names))
    return summary


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="transfer_recorded")
def run(config: DictConfig) -> None:
    """One configuration."""
    console, begin = Console(), time.perf_counter()
    with refusals(console, ValueError, RuntimeError, OSError):
        plan = plan_of(config)
        lock = locked(make_folder(plan.output))
        summary = study(plan, console)
        lock.close()
    transfer_recorded_report.show(console, summary)
    say_where(console, begin, plan.output)


def main() -> None:
    """Command line."""
    command_line(run)
