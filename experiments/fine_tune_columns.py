"""Fine-tuning of policies that write programs column by column: some of what they write is measured, and that is how it ranks.

The policy goes on as it was trained, by the rank of its programs among those of their task. Where a kernel was measured its time
counts, elsewhere the model's, corrected by what was measured of that structure (`agents.feedback`, as `markov_ext` predicts).
The fastest kernels measured of a task stand among the programs drawn for it, so that it learns from them however improbable they
were (self-imitation, Oh et al. 2018). Between two steps of learning kernels of one operator are measured: those of its draws that
are predicted to be the fastest, some of them of warmer draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from agents.column_choices import Choices
from agents.column_given import Given
from agents.column_learner import ColumnLearner
from agents.column_policy import load_columns
from agents.feedback import Feedback
from agents.learned import POLICY
from agents.ranking import diverse, ranked
from experiments.measured_budget import MeasuredBudget
from experiments.measured_reward import Timings
from experiments.results import whole
from experiments.watch import LAST
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

PER_REGISTER_TILE = 2
"""Kernels of one register tile that are measured at a time before others, as strategies do."""


class Judge:
    """What programs of one operator take: measured, or else predicted."""

    def __init__(self, choices: Choices, timings: Timings) -> None:
        """Begin with what is in the timings."""
        self.choices, self.timings, self.feedback = choices, timings, Feedback()
        self.known: dict[Schedule, float] = {}
        """Measured seconds, infinite where a kernel failed."""
        for line in timings.of(str(self.graph.operator)):
            schedule = Schedule.parse(line["schedule"])
            self._keep(schedule, line, self.graph.latency(schedule))

    @property
    def graph(self) -> ConstructionGraph:
        """Of the operator."""
        return self.choices.graph

    def seconds(self, rows: np.ndarray) -> np.ndarray:
        """Of programs int32 [N, ROW], float64 [N]; infinite where one does not fit, or failed."""
        found = self.graph.latencies(rows)
        if not self.known:
            return found
        for i in np.flatnonzero(np.isfinite(found)):
            schedule = Schedule(rows[i])
            measured = self.known.get(schedule)
            found[i] = self.feedback.corrected(schedule, float(found[i])) if measured is None else measured
        return found

    def measure(self, rows: np.ndarray, count: int) -> None:
        """Measure the `count` programs that are predicted to be the fastest of those not measured, of several register tiles."""
        seconds = self.seconds(rows)
        fitting = np.isfinite(seconds)
        fresh = tuple(s for s in ranked(rows[fitting], seconds[fitting], self.graph)[0] if s not in self.known)
        for schedule in diverse(fresh, PER_REGISTER_TILE)[:count]:
            model = self.graph.latency(schedule)
            self._keep(schedule, self.timings.line(self.graph, schedule, model), model)

    def fastest(self, count: int) -> np.ndarray:
        """Choices int64 [at most `count`, K] of the kernels that ran, fastest first."""
        ran = sorted((s for s, seconds in self.known.items() if math.isfinite(seconds)), key=self.known.__getitem__)
        vectors = [vector for s in ran[:count] if (vector := self.choices.programs.vector(s)) is not None]
        return np.array(vectors, dtype=np.int64).reshape(-1, len(self.choices.counts))[:, self.choices.order]

    def _keep(self, schedule: Schedule, line: dict[str, Any], model: float) -> None:
        """Know a kernel."""
        measured = math.inf if line["seconds"] is None else float(line["seconds"])
        self.known[schedule] = measured
        self.feedback.add(schedule, model, measured)


class MeasuredLearner(ColumnLearner):
    """A learner whose programs are ranked by judges."""

    def __init__(self, settings: dict[str, Any], graphs: Sequence[ConstructionGraph], timings: Timings, seed: int) -> None:
        """With a network of its own; steps are not counted beforehand, since measurements end it."""
        constant = {f"final_{name}": settings[name] for name in ("learning_rate", "entropy")}
        super().__init__({**settings, **constant}, graphs, 1, seed)
        self.judges = {choices: Judge(choices, timings) for choices in self.choices}

    def seconds(self, choices: Choices, rows: np.ndarray) -> np.ndarray:
        """By the judge of the task."""
        return self.judges[choices].seconds(rows)

    def given(self, choices: Choices) -> Given:
        """The fastest kernels that were measured."""
        return Given(self.judges[choices].fastest(self.settings["remembered"]))

    def measure(self) -> None:
        """Measure a few draws for the next task."""
        choices = self.choices[int(self.rng.integers(len(self.choices)))]
        warm = self.settings["warm_kernels"]
        for count, temperature in ((self.settings["kernels"] - warm, 1.0), (warm, self.settings["temperature"])):
            draws = self.rng.random((self.settings["programs"], len(choices.counts)))
            with torch.no_grad():
                chosen, _, _ = self.network(choices, draws, temperature)
            self.judges[choices].measure(choices.rows(chosen), count)


def check(settings: DictConfig) -> None:
    """ValueError names a setting that is out of range; those of any training of columns are left to the learner."""
    least = {"kernels": 1, "updates": 1, "warm_kernels": 0, "remembered": 0}
    most = {"warm_kernels": settings.kernels, "remembered": settings.programs // 2}
    for name, low in least.items():
        if not low <= settings[name] <= most.get(name, math.inf):
            bound = f"{low} to {most[name]}" if name in most else f"{low} or more"
            raise ValueError(f"columns.{name} is {settings[name]}; expected {bound}")
    if not settings.temperature > 0.0:
        raise ValueError(f"columns.temperature is {settings.temperature}; expected above 0")


def learn(
    config: DictConfig, card: dict[str, Any], ops: list[Operator], hardware: Hardware, timings: Timings, folder: Path
) -> tuple[int, float]:
    """Go on with the policy of the card, which is saved; programs written and seconds, of earlier runs as well.

    ValueError names a setting that is out of range.
    """
    check(config.columns)
    space, width = card["config"]["env"]["space"], card["config"]["agent"]["width"]
    graphs = [ConstructionGraph(op, hardware, space) for op in ops]
    learner = MeasuredLearner({**config.columns, "width": width}, graphs, timings, config.seed)
    resumed = (folder / LAST).exists()
    if resumed:
        learner.restore(torch.load(folder / LAST, weights_only=False))
    else:
        learner.network.load_state_dict(load_columns(str(config.checkpoint)).state_dict())
    budget = MeasuredBudget(timings, config, folder, resumed)
    while budget.is_left():
        learner.measure()
        learner.rewards += [learner.advance() for _ in range(config.columns.updates)]
        mean, learner.rewards = float(np.mean(learner.rewards)), []
        whole(folder / LAST, lambda temporary: torch.save(learner.state(), temporary))
        budget.add_point(mean)
    whole(folder / POLICY, learner.save)
    return learner.num_timesteps, budget.elapsed
