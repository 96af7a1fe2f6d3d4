"""Zero-shot: trained policies beside search by the model on operators that nothing was trained on, the optimum known.

`python -m experiments generalise` (conf/generalise.yaml, docs/generalisation.md). Nothing is timed but the searches themselves.
Every search is a line of lines.jsonl, kept as soon as it is there: a command that was stopped goes on where it was. A line stays
valid as long as fingerprint, hyperparameters and policy are the same; delete the file to have all of them made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.common.optima import optima
from experiments.studies.generalise import report
from experiments.studies.generalise.plan import Plan, plan_of, searches
from experiments.studies.generalise.policies import Trained, train_missing
from experiments.studies.generalise.scores import Regrets, task_of
from experiments.studies.generalise.summary import summarise
from experiments.studies.study import Study, study_command
from gensor_gym.exact import Certificate


def certified(
    texts: Sequence[str], hardware: str, plan: Plan, folder: Path, console: Console
) -> tuple[dict[str, Certificate], dict[str, str]]:
    """Optima of operators on a hardware, certified into a folder where they do not ship, and why others have none.

    ValueError where no operator has one.
    """
    with console.status(f"certified optima on {hardware}"):
        known, unknown = optima(texts, hardware, plan.space, folder, plan.processes, plan.nodes)
    if not known:
        raise ValueError(f"no optimum is certified on {hardware}: {unknown}; the study needs one task with an optimum at least")
    return known, unknown


class Generalisation(Study[Plan, Regrets]):
    """Policies on operators they did not learn from, beside searches."""

    report = report

    def run(self, console: Console) -> Regrets:
        """Train, certify, search what is missing."""
        plan = self.plan
        policies: dict[str, Sequence[Trained]] = {}
        for learned in plan.policies:
            with console.status(f"policies {learned.name}: training what is missing"):
                policies[learned.name] = train_missing(
                    learned.folder, plan.seeds, plan.hardware, plan.space, learned.train, plan.processes, plan.split
                )
        known, unknown = certified([str(op) for op in plan.operators], plan.hardware, plan, plan.output, console)
        rows = self.lines(searches(plan, list(known), policies), plan.processes, console)
        tasks = [task_of(op, known[str(op)]) for op in plan.operators if str(op) in known]
        return Regrets(plan, tasks, rows, policies, unknown)

    def summarise(self, found: Regrets) -> dict[str, Any]:
        """See `summary`."""
        return summarise(found)

    def draw(self, found: Regrets, summary: dict[str, Any]) -> list[str]:
        """Curves and profiles."""
        from experiments.studies.generalise import figures

        return figures.draw(found, self.plan.output)


main = study_command("generalise", lambda config: Generalisation(plan_of(config)))
