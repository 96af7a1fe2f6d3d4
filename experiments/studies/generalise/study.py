"""Trained policies and search by the model on operators that nothing trained on, with known optima.

`python -m experiments generalise` (conf/generalise.yaml, docs/generalisation.md). Only the searches themselves are timed. A line
of lines.jsonl stays valid while fingerprint, hyperparameters and policy stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

from experiments.common.anytime import Search
from experiments.common.optima import optima
from experiments.studies.generalise import report
from experiments.studies.generalise.plan import GeneralisePlan, plan_of, searches
from experiments.studies.generalise.policies import Trained, train_missing
from experiments.studies.generalise.scores import Regrets, task_of
from experiments.studies.generalise.summary import summarise
from experiments.studies.study import Study, study_command

Wanted = Callable[[GeneralisePlan, Sequence[str], Any], list[Search]]


def regrets_of(
    study: Study[GeneralisePlan, Any], plan: GeneralisePlan, policies: Mapping[str, Sequence[Trained]], wanted: Wanted,
    console: Console,
) -> Regrets:  # fmt: skip
    """Certify optima that do not ship into the study's folder, search what is missing. ValueError without any optimum."""
    texts = [str(op) for op in plan.operators]
    with console.status(f"certified optima on {plan.hardware}"):
        known, unknown = optima(texts, plan.hardware, plan.space, study.plan.output, plan.processes, plan.config["nodes"])
    if not known:
        raise ValueError(f"no optimum is certified on {plan.hardware}: {unknown}; the study needs one task with an optimum")
    rows = study.lines(wanted(plan, list(known), policies), console)
    return Regrets(plan, [task_of(op, known[str(op)]) for op in plan.operators if str(op) in known], rows, policies, unknown)


class Generalisation(Study[GeneralisePlan, Regrets]):
    """Policies and searches on unseen operators."""

    def run(self, console: Console) -> Regrets:
        """Train, certify, search what is missing."""
        plan = self.plan
        policies: dict[str, Sequence[Trained]] = {}
        for learned in plan.policies:
            with console.status(f"policies {learned.name}: training what is missing"):
                policies[learned.name] = train_missing(
                    learned.folder, plan.seeds, plan.hardware, plan.space, learned.train, plan.processes, plan.split
                )
        return regrets_of(self, plan, policies, searches, console)

    def summarise(self, found: Regrets) -> dict[str, Any]:
        """See `summary`."""
        return summarise(found)

    def draw(self, found: Regrets, summary: dict[str, Any]) -> list[str]:
        """Curves and profiles."""
        from experiments.studies.generalise import figures

        return figures.draw(found, self.plan.output)

    markdown, sheet = staticmethod(report.markdown), staticmethod(report.sheet)


main = study_command("generalise", lambda config: Generalisation(plan_of(config)))
