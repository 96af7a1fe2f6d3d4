"""Searches for tables of papers: jobs on one hardware, which its model answers or which are timed.

Outcomes, trials and timings stay in the folder of the table, so that a stopped command resumes without repetition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig
from rich.console import Console

from agents.runs.jobs import DONE, Jobs, Outcome
from agents.runs.pool import made
from agents.runs.settings import Job
from agents.runs.texts import seconds_text
from experiments.common.statistics import bootstrap
from experiments.comparison.retime import TORCH, Comparison, Retimer
from experiments.comparison.summary import ratio
from experiments.tables.table import Stamp
from gensor_gym import hardware as machines
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.session import Budget
from gensor_gym.operators.types import Operator

MODEL, LIVE = "model", "live"
TIERS = (MODEL, LIVE)
"""Ways to make a table: on the analytic model of the paper's hardware, or by timing on the present hardware."""
MODEL_OF = "rtx4090"
MODEL_TRIALS, LIVE_TRIALS = 256, 32
"""Numbers of trials of the searches that measure, for each tier, unless the configuration or the table sets them."""
ANSOR = {MODEL: "ansor", LIVE: "ansor_small"}
"""Tier -> variant of Ansor for the tier's number of trials."""


@dataclass(frozen=True)
class Contender:
    """A strategy in a table: its name there, its number of trials, and its registered name `of` if that differs."""

    name: str
    trials: int
    of: str = ""
    hyperparameters: Mapping[str, object] = field(default_factory=dict)


Program = tuple[Schedule, float]
"""A schedule with the seconds that its search measured."""


@dataclass(frozen=True)
class Found:
    """A finished search: its outcome, and its trials as rows of results.jsonl."""

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
    """Searches on one hardware, by its model or timed, whose results are kept in one folder."""

    def __init__(self, config: DictConfig, folder: Path, tier: str, hardware: str | None = None, alone: bool = False) -> None:
        """Open the folder of the searches, which are answered by the model of an RTX 4090 or timed on the configured hardware.

        `config` is from conf/reproduce.yaml, and `tier` is `model` or `live`; `hardware` replaces that of the tier. `alone` runs
        one search at a time, for reported wall times. Raise ValueError if the seeds are not a list of seeds, the hardware is not
        present, or the folder is in use.
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
        """Return the origin of these searches' numbers, for a table with numbers published for the hardware `published`."""
        if self.tier == MODEL:
            return Stamp.PREDICTED
        return Stamp.REPRODUCED if self.hardware.name == published else Stamp.REPLICATED

    def run(self, operators: Iterable[Operator], contenders: Sequence[Contender]) -> Ended:
        """Run the searches of every strategy on every operator with every seed that are missing; return all results."""
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
        """Time the winners on an operator and torch together, interleaved; on the model, only compare the winners' latencies."""
        return self._retimer.compare(op, {label: won for label, won in winners.items() if won is not None})

    def _job(self, op: Operator, one: Contender, seed: int) -> Job:
        of = one.of or one.name
        name = f"{one.name if one.hyperparameters else of}@{one.trials}"  # one job for all tables, under any name
        budget = Budget(trials=one.trials)
        return Job(op, self.hardware, self.backend.name, self.device, name, of, one.hyperparameters, seed, budget)

    def _search(self, job: Job) -> tuple[Job, Outcome]:
        if job.strategy not in self._warm:
            self._warm.add(job.strategy)
            self._jobs.warm_up(job)
        return job, self._jobs.run(job, lambda _: None)

    def _say(self, job: Job, outcome: Outcome) -> None:
        end = f"{outcome.trials} trials, {outcome.elapsed_s:.1f} s" if outcome.status == DONE else outcome.error
        best = "" if outcome.seconds is None else f"{seconds_text(outcome.seconds)}, "
        self._console.print(f"{self.device}: {job.strategy} seed {job.seed} on {job.operator}: {best}{end}", soft_wrap=True)


Ended = dict[tuple[Operator, str, int], Found]
"""(operator, name of the strategy in the table, seed) -> finished search."""


def trials_of(config: DictConfig, tier: str, live: int = LIVE_TRIALS) -> int:
    """Return the number of trials of each search: the configuration's, else `MODEL_TRIALS` on the model and `live` if timed."""
    return int(config.model_trials or MODEL_TRIALS) if tier == MODEL else int(config.trials or live)


def tiers_of(config: DictConfig) -> tuple[str, ...]:
    """Return the tiers (`model`, `live`) that the configuration requests; raise ValueError for an unknown one."""
    tiers = tuple(config.tiers)
    if not tiers or set(tiers) - set(TIERS):
        raise ValueError(f"tiers {list(tiers)}: expected some of {', '.join(TIERS)}")
    return tiers


# Speeds of strategies relative to a reference, by operator and by class, with intervals.

FEW = 3
"""Least number of operators for which an interval is bootstrapped."""


@dataclass(frozen=True)
class Speeds:
    """Speeds of several strategies, and of torch if it was timed, on every operator with every seed.

    `logs` [operators, seeds] are logarithms of the reference's time over the name's own time, NaN if missing. `low` and `high`
    are the ends of 95 % intervals over the rounds of timing. `seconds` are medians. With the model, an interval has length zero.
    """

    operators: tuple[Operator, ...]
    live: bool
    logs: dict[str, np.ndarray]
    low: dict[str, np.ndarray]
    high: dict[str, np.ndarray]
    seconds: dict[str, np.ndarray]

    def class_logs(self, name: str, of: str | None) -> np.ndarray:
        """Return `logs` of the operators of a class (None: all) on which every name has a value, so that means are comparable."""
        return self.logs[name][self.complete(of)]

    def complete(self, of: str | None) -> np.ndarray:
        """Return a mask bool [operators] of a class's operators (None: all) on which every name has a time with every seed."""
        whole = np.all([np.isfinite(logs).all(axis=1) for logs in self.logs.values()], axis=0)
        return whole & np.array([of is None or op.name == of for op in self.operators])

    def cell(self, name: str, at: int) -> str | None:
        """Return the text of a speed on one operator: geometric mean over seeds and, if timed, the widest interval over seeds."""
        logs = self.logs[name][at]
        if not np.isfinite(logs).any():
            return None
        text = f"{np.exp(np.nanmean(logs)):.2f}"
        return f"{text} [{np.nanmin(self.low[name][at]):.2f}, {np.nanmax(self.high[name][at]):.2f}]" if self.live else text


def speeds_of(searches: Searches, operators: Sequence[Operator], contenders: Sequence[Contender], reference: str) -> Speeds:
    """Run the searches, time all winners on an operator together, and return their speeds relative to strategy `reference`."""
    found, seeds = searches.run(operators, contenders), searches.seeds
    names = [one.name for one in contenders] + ([TORCH] if searches.tier == LIVE else [])
    shape = (len(operators), len(seeds))
    made = {field: {name: np.full(shape, np.nan) for name in names} for field in ("logs", "low", "high", "seconds")}
    for i, op in enumerate(operators):
        timed = searches.retimed(op, {_label(name, seed): of.best for (at, name, seed), of in found.items() if at == op})
        for j, seed in enumerate(seeds):
            for name in names:
                _fill(made, timed, (i, j), name, seed, reference)
    if TORCH in names and np.isnan(made["seconds"][TORCH]).all():
        for values in made.values():
            del values[TORCH]
    return Speeds(tuple(operators), searches.tier == LIVE, **made)


def _fill(
    made: dict[str, dict[str, np.ndarray]], timed: Comparison, at: tuple[int, int], name: str, seed: int, reference: str
) -> None:
    """Enter the times and speeds of one name and seed into the arrays, if it and the reference were timed."""
    mine, other = (timed.samples.get(_label(of, seed)) for of in (name, reference))
    if mine:
        made["seconds"][name][at] = float(np.median(mine))
    if mine and other:
        found = ratio(other, mine)
        made["logs"][name][at] = np.log(found["median"])
        made["low"][name][at], made["high"][name][at] = found["low"], found["high"]


def mean_text(logs: np.ndarray) -> str:
    """Return the text of the geometric mean exp(mean(logs)) of logs [operators, seeds], with its bootstrap interval.

    Fewer than `FEW` operators have no interval; without any operator the text is a dash.
    """
    if not logs.size:
        return "-"
    text = f"{np.exp(np.mean(logs)):.2f}"
    if len(logs) < FEW:
        return text
    low, high = bootstrap(np.mean, logs)
    return f"{text} [{np.exp(low):.2f}, {np.exp(high):.2f}]"


def rates(speeds: Speeds, name: str) -> list[float | None]:
    """Return the TFLOP/s of a strategy on every operator, from the geometric mean of seconds over seeds; None if missing."""
    rows = zip(speeds.operators, speeds.seconds[name], strict=True)
    return [op.flops / float(np.exp(np.nanmean(np.log(s)))) / 1e12 if np.isfinite(s).any() else None for op, s in rows]


def _label(name: str, seed: int) -> str:
    """Return the label of a winner among the samples of a comparison; torch has no seed."""
    return name if name == TORCH else f"{name}/{seed}"
