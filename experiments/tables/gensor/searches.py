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

from agents.runs.jobs import DONE, Jobs, Outcome
from agents.runs.pool import made
from agents.runs.settings import Job
from agents.runs.texts import seconds_text
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
MODEL_OF = "rtx4090"
MODEL_TRIALS, LIVE_TRIALS = 256, 32
"""Trials of the searches that measure, unless the configuration or the table sets them."""
ANSOR = {MODEL: "ansor", LIVE: "ansor_small"}
"""Tier -> Ansor's variant for that many trials."""


@dataclass(frozen=True)
class Contender:
    """A strategy in a table: its name there, its trials, and its registered name `of` if that differs."""

    name: str
    trials: int
    of: str = ""
    hyperparameters: Mapping[str, object] = field(default_factory=dict)


Program = tuple[Schedule, float]
"""A schedule with the seconds that its search measured."""


@dataclass(frozen=True)
class Found:
    """A finished search; `rows` are its trials, as in results.jsonl."""

    outcome: Outcome
    rows: list[dict[str, Any]]

    @property
    def best(self) -> Program | None:
        """The program that the search ended with; None if no trial succeeded."""
        return None if self.outcome.seconds is None else (Schedule.parse(self.outcome.schedule), self.outcome.seconds)

    @property
    def first(self) -> Program | None:
        """The program of the first trial that succeeded; None if none did."""
        good = (row for row in self.rows if row["seconds"] is not None)
        return next(((Schedule.parse(row["schedule"]), row["seconds"]) for row in good), None)


class Searches:
    """Searches on one hardware in one folder."""

    def __init__(self, config: DictConfig, folder: Path, tier: str, hardware: str | None = None, alone: bool = False) -> None:
        """`config` is from conf/reproduce.yaml. By default, tier `model` is an RTX 4090 and tier `live` the configured hardware.

        `alone` runs one search at a time, for reported wall times. ValueError if the seeds are not a list of seeds, the hardware
        is not present, or the folder is in use.
        """
        self.tier = tier
        self.seeds = list(config.seeds)
        if not self.seeds or not all(isinstance(seed, int) and seed >= 0 for seed in self.seeds):
            raise ValueError(f"seeds {self.seeds}: expected a list of numbers from 0")
        self.hardware = machines.get(hardware or (MODEL_OF if tier == MODEL else config.hardware))
        self.backend = get_backend("analytic" if tier == MODEL else "auto", self.hardware)
        self.device = self.backend.device(self.hardware)
        self._workers = config.workers if tier == MODEL and not alone else 1
        place = folder / f"{tier}_{self.hardware.name}"
        self._jobs = Jobs(self.backend, Path(config.store or folder / "trials.sqlite"), place)
        self._retimer = Retimer(self.backend, self.hardware, config.rounds, place / "comparisons")
        self._warm: set[str] = set()
        self._console = Console(stderr=True, highlight=False)

    def stamp(self, published: str = MODEL_OF) -> Stamp:
        """Stamp of a table of these searches next to numbers published for the hardware `published`."""
        if self.tier == MODEL:
            return Stamp.PREDICTED
        return Stamp.REPRODUCED if self.hardware.name == published else Stamp.REPLICATED

    def run(self, operators: Iterable[Operator], contenders: Sequence[Contender]) -> Ended:
        """Run the missing searches of every contender on every operator with every seed; return all results."""
        jobs = {
            (op, one.name, seed): self._job(op, one, seed) for op in operators for seed in self.seeds for one in contenders
        }
        ended = {job.key: outcome for job in jobs.values() if (outcome := self._jobs.finished(job)) is not None}
        todo = [job for job in jobs.values() if job.key not in ended]
        parallel = self._workers > 1 and len(todo) > 1
        for job, outcome in made(self._jobs, todo, self._workers) if parallel else map(self._search, todo):
            ended[job.key] = outcome
            self._say(job, outcome)
        return {key: Found(ended[job.key], self._jobs.results.rows(job)) for key, job in jobs.items()}

    def retimed(self, op: Operator, winners: Mapping[str, Program | None]) -> Comparison:
        """Time the winners and torch together, interleaved. With the model, only compare the winners' latencies."""
        return self._retimer.compare(op, {label: won for label, won in winners.items() if won is not None})

    def _job(self, op: Operator, one: Contender, seed: int) -> Job:
        """The job of a contender on an operator with a seed."""
        of = one.of or one.name
        name = f"{one.name if one.hyperparameters else of}@{one.trials}"  # the same job for all tables, whatever they call it
        budget = Budget(trials=one.trials)
        return Job(op, self.hardware, self.backend.name, self.device, name, of, one.hyperparameters, seed, budget)

    def _search(self, job: Job) -> tuple[Job, Outcome]:
        """Run one search in this process, after loading its strategy."""
        if job.strategy not in self._warm:
            self._warm.add(job.strategy)
            self._jobs.warm_up(job)
        return job, self._jobs.run(job, lambda _: None)

    def _say(self, job: Job, outcome: Outcome) -> None:
        """Print a line about a finished search."""
        end = f"{outcome.trials} trials, {outcome.elapsed_s:.1f} s" if outcome.status == DONE else outcome.error
        best = "" if outcome.seconds is None else f"{seconds_text(outcome.seconds)}, "
        self._console.print(f"{self.device}: {job.strategy} seed {job.seed} on {job.operator}: {best}{end}", soft_wrap=True)


Ended = dict[tuple[Operator, str, int], Found]
"""(operator, name of the contender, seed) -> finished search."""


def trials_of(config: DictConfig, tier: str, live: int = LIVE_TRIALS) -> int:
    """Trials of the searches that measure: the configuration's number, else MODEL_TRIALS or `live`, depending on the tier."""
    return int(config.model_trials or MODEL_TRIALS) if tier == MODEL else int(config.trials or live)


def tiers_of(config: DictConfig) -> tuple[str, ...]:
    """The requested tiers; ValueError for an unknown tier."""
    tiers = tuple(config.tiers)
    if not tiers or set(tiers) - set(TIERS):
        raise ValueError(f"tiers {list(tiers)}: expected some of {', '.join(TIERS)}")
    return tiers
