"""Searches for tables of papers: resumable jobs on one hardware, answered by its model or timed.

Outcomes, trials and timings stay in the folder of the table, so that a stopped command resumes without repetition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from experiments.common.jobs import DONE, Jobs, Outcome
from experiments.common.pool import made
from experiments.common.settings import Job
from experiments.common.texts import seconds_text
from experiments.comparison.retime import Comparison, Retimer
from experiments.tables.table import Stamp
from gensor_gym import hardware as machines
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.session import Budget
from gensor_gym.operators.types import Operator

MODEL, LIVE = "model", "live"
TIERS = (MODEL, LIVE)
"""Tiers: the analytic model of the paper's hardware, and timing on the present hardware."""


@dataclass(frozen=True)
class Contender:
    """A strategy in a table: its name there, its trials, and its registered name `of` if that differs."""

    name: str
    trials: int
    of: str = ""
    hyperparameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """A finished search; `rows` are its trials, like in results.jsonl."""

    job: Job
    outcome: Outcome
    rows: list[dict[str, Any]]

    @property
    def first(self) -> dict[str, Any] | None:
        """The first trial that succeeded; None if none did."""
        return next((row for row in self.rows if row["seconds"] is not None), None)


class Searches:
    """Searches on one hardware in one folder."""

    def __init__(self, config: DictConfig, folder: Path, tier: str, hardware: str) -> None:
        """`config` is conf/reproduce.yaml's. ValueError if the hardware is not present or the folder is in use."""
        self.tier = tier
        self.hardware = machines.get(hardware)
        self.backend = get_backend("analytic" if tier == MODEL else "auto", self.hardware)
        self.device = self.backend.device(self.hardware)
        self._workers = config.workers if tier == MODEL else 1
        place = folder / f"{tier}_{self.hardware.name}"
        self._jobs = Jobs(self.backend, Path(config.store or folder / "trials.sqlite"), place)
        self._retimer = Retimer(self.backend, self.hardware, config.rounds, place / "comparisons")
        self._warm: set[str] = set()
        self._console = Console(stderr=True, highlight=False)

    def stamp(self, published: str) -> Stamp:
        """Stamp of a table of these searches next to numbers published for the hardware `published`."""
        if self.tier == MODEL:
            return Stamp.PREDICTED
        return Stamp.REPRODUCED if self.hardware.name == published else Stamp.REPLICATED

    def run(
        self, operators: Iterable[Operator], contenders: Sequence[Contender], seeds: Iterable[int]
    ) -> dict[tuple[Operator, str, int], Found]:
        """Run the missing searches of every contender on every operator with every seed; return all results."""
        jobs = {
            (op, one.name, seed): self._job(op, one, seed) for op in operators for seed in seeds for one in contenders
        }
        todo = [job for job in jobs.values() if self._jobs.finished(job) is None]
        ended: dict[str, Outcome] = {}
        if self._workers > 1 and len(todo) > 1:
            for job, outcome in made(self._jobs, todo, self._workers):
                ended[job.key] = outcome
                self._say(job, outcome)
        else:
            for job in todo:
                ended[job.key] = self._search(job)
        return {key: self._found(job, ended.get(job.key)) for key, job in jobs.items()}

    def retimed(self, op: Operator, winners: Mapping[str, Found | tuple[str, float]]) -> Comparison:
        """Time the winners and torch together, interleaved. With the model, only compare the winners' latencies."""
        chosen = {}
        for label, won in winners.items():
            schedule, seconds = (won.outcome.schedule, won.outcome.seconds) if isinstance(won, Found) else won
            if seconds is not None:
                chosen[label] = (Schedule.parse(schedule), seconds)
        return self._retimer.compare(op, chosen)

    def _job(self, op: Operator, one: Contender, seed: int) -> Job:
        """The job of a contender on an operator with a seed."""
        of = one.of or one.name
        name = f"{one.name if one.hyperparameters else of}@{one.trials}"  # the same job for all tables, whatever they call it
        budget = Budget(trials=one.trials)
        return Job(op, self.hardware, self.backend.name, self.device, name, of, one.hyperparameters, seed, budget)

    def _search(self, job: Job) -> Outcome:
        """Run one search in this process, after loading its strategy."""
        if job.strategy not in self._warm:
            self._warm.add(job.strategy)
            self._jobs.warm_up(job)
        outcome = self._jobs.run(job, lambda _: None)
        self._say(job, outcome)
        return outcome

    def _found(self, job: Job, outcome: Outcome | None) -> Found:
        """A result with its trials; without an outcome, read it from disk."""
        known = outcome or self._jobs.finished(job)
        if known is None:
            raise RuntimeError(f"the outcome of {job.strategy} on {job.operator} is gone from the folder")
        return Found(job, known, self._jobs.results.rows(job))

    def _say(self, job: Job, outcome: Outcome) -> None:
        """Print a line about a finished search."""
        end = f"{outcome.trials} trials, {outcome.elapsed_s:.1f} s" if outcome.status == DONE else outcome.error
        best = "" if outcome.seconds is None else f"{seconds_text(outcome.seconds)}, "
        self._console.print(f"{self.device}: {job.strategy} seed {job.seed} on {job.operator}: {best}{end}", soft_wrap=True)


def searches_of(config: DictConfig, folder: Path, tier: str, alone: bool = False) -> Searches:
    """Searches on the model of an RTX 4090 or on the present hardware; `alone` runs one at a time, for reported wall times."""
    given = config.copy()
    given.workers = 1 if alone else config.workers
    return Searches(given, folder, tier, "rtx4090" if tier == MODEL else config.hardware)


def trials_of(config: DictConfig, tier: str, model: int, live: int) -> int:
    """Trials of the searches that measure: the configuration's number, else `model` or `live`, by the tier."""
    return int(config.model_trials or model) if tier == MODEL else int(config.trials or live)


def tiers_of(config: DictConfig) -> tuple[str, ...]:
    """The requested tiers; ValueError for an unknown tier."""
    tiers = tuple(config.tiers)
    if not tiers or set(tiers) - set(TIERS):
        raise ValueError(f"tiers {list(tiers)}: expected some of {', '.join(TIERS)}")
    return tiers


def seeds_of(config: DictConfig) -> list[int]:
    """The configured seeds; ValueError if they are not a list of seeds."""
    seeds = list(config.seeds)
    if not seeds or not all(isinstance(seed, int) and seed >= 0 for seed in seeds):
        raise ValueError(f"seeds {seeds}: expected a list of numbers from 0")
    return seeds
