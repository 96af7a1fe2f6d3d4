"""Policies trained on recordings of one real GPU, tested on others: `python -m experiments transfer_recorded`.

conf/transfer_recorded.yaml, docs/generalisation.md. The recordings are complete spaces of a kernel, measured on several GPUs:
regret is to the best configuration of the tested one. Beside a policy trained on another GPU stand one trained on the tested
recording itself (it memorises: no result on an unseen device), one trained on all others, the order of other GPUs' times without
any learning, and plain searches, all at equal trials. Nothing is timed here. A command that was stopped goes on where it was.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console

from experiments.common.lines import with_bar
from experiments.common.pool import side_by_side
from experiments.studies.study import Study, study_command
from experiments.studies.transfer_recorded import report
from experiments.studies.transfer_recorded.plan import RecordedPlan, plan_of
from experiments.studies.transfer_recorded.scores import summarise
from experiments.studies.transfer_recorded.searches import search_recorded
from experiments.training.recorded.spaces import known_card, learn_at

Rows = list[dict[str, Any]]


class RecordedTransfer(Study[RecordedPlan, tuple[Rows, Rows]]):
    """What is found are the lines of all searches, and the cards of all policies."""

    report = report

    def run(self, console: Console) -> tuple[Rows, Rows]:
        """Train and search what is missing."""
        plan, trainings = self.plan, self.plan.trainings()
        missing = [training for training in trainings if known_card(*training) is None]
        list(with_bar(console, "policies", side_by_side(learn_at, missing, plan.processes), len(missing)))
        cards = [card for training in trainings if (card := known_card(*training)) is not None]
        return self.lines(plan.searches(), plan.processes, console, search_recorded), cards

    def summarise(self, found: tuple[Rows, Rows]) -> dict[str, Any]:
        """See `scores`."""
        return summarise(self.plan, *found)

    def draw(self, found: tuple[Rows, Rows], summary: dict[str, Any]) -> list[str]:
        """Matrices and curves."""
        return report.draw(summary, self.plan.output)


main = study_command("transfer_recorded", lambda config: RecordedTransfer(plan_of(config)))
