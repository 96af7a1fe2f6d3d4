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

from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape

from agents.cli.checks import check_whole
from agents.runs.files import write_text
from agents.runs.jobs import DONE, Jobs
from agents.runs.lines import with_bar
from agents.runs.pool import made
from agents.runs.settings import settings_of
from experiments.studies.search import report
from experiments.studies.search.scores import Scores, scores_of, summarise
from experiments.studies.study import Plan, Study, study_command
from gensor_gym.measure.analytic import AnalyticBackend
from gensor_gym.measure.records.backend import RecordedBackend
from gensor_gym.registry import near


class SearchStudy(Study[Plan, Scores]):
    """The study of strategies on tasks, with a job for every search."""

    jobs: Jobs
    """Jobs of the folder, open while this process holds its lock."""

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
        """Folder of all files, named after the jobs by default."""
        return self.settings.output

    def claim(self) -> closing[Any]:
        """Open the jobs of the folder, which locks it; return the context that closes them."""
        self.jobs = Jobs(self.settings.backend, self.settings.store, self.output)
        return closing(self.jobs)

    def run(self, console: Console) -> Scores:
        """Run the missing searches and return the scores of all."""
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
        """Write study_values.jsonl, with a row for each search, and return the summary."""
        values = [json.dumps(value) for value in found.values(self.checkpoints, self.said["reference"])]
        write_text(self.output / "study_values.jsonl", "\n".join(values) + "\n")
        return summarise(found, self.checkpoints, self.said["reference"], self.said["resamples"], self.hypotheses)

    def draw(self, found: Scores, summary: dict[str, Any]) -> list[str]:
        """Draw all figures and return the file names; empty if no strategy has completed all its searches."""
        from experiments.studies.search import figures

        return figures.draw(found, summary, summary["reference"], self.output) if found.strategies else []

    markdown, sheet = staticmethod(report.markdown), staticmethod(report.sheet)


main = study_command("study", SearchStudy)
