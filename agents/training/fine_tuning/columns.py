"""Fine-tune policies that write programs column by column: measured times rank the programs for a learner.

The policy is still trained on the rank of each program among all programs drawn for its task. A measured kernel counts with its
measured time. An unmeasured kernel counts with the model's time, corrected by measurements of kernels of the same structure
(`agents.core.feedback`, as in `markov_ext`). The fastest measured kernels of a task are added to the drawn programs, so that the
policy learns from them however improbable they were (self-imitation, Oh et al. 2018). Kernels are measured before every step of
learning: the policy's draws with the fastest predicted times, some of them drawn at a higher temperature.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from agents.columns.choices import Choices
from agents.columns.given import Given
from agents.columns.learner import ColumnLearner
from agents.columns.policy import load_columns
from agents.core.feedback import Feedback
from agents.core.ranking import diverse, ranked
from agents.learners.stored import POLICY
from agents.training.fine_tuning.measured_reward import MeasuredBudget, Timings
from agents.training.state.archive import read_state, write_state
from agents.training.watch import LAST
from gensor_gym.construction import ConstructionGraph
from gensor_gym.files import whole
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

PER_REGISTER_TILE = 2
"""Number of kernels of each register tile to measure first, as in the strategies; all other kernels follow."""
Line = Mapping[str, Any]
"""A measured kernel: operator, schedule, seconds (None if it failed), and other fields."""


class Judge:
    """Judges one operator's programs by their times: measured if known, otherwise predicted."""

    def __init__(self, choices: Choices, lines: Sequence[Line] = ()) -> None:
        self.choices, self.feedback = choices, Feedback()
        self.known: dict[Schedule, float] = {}
        """Schedule -> measured seconds of its kernel, infinite if the kernel failed."""
        self.asked: set[Schedule] = set()
        """Programs that were requested but are not measured yet."""
        for line in lines:
            self.keep(Schedule.parse(line["schedule"]), line)

    @property
    def graph(self) -> ConstructionGraph:
        """Construction graph of the operator."""
        return self.choices.graph

    def seconds(self, rows: np.ndarray) -> np.ndarray:
        """Return the measured or predicted seconds float64 [N] of programs int32 [N, ROW]; infinite if illegal or failed."""
        found = self.graph.latencies(rows)
        if not self.known:
            return found
        for i in np.flatnonzero(np.isfinite(found)):
            schedule = Schedule(rows[i])
            measured = self.known.get(schedule)
            found[i] = self.feedback.corrected(schedule, float(found[i])) if measured is None else measured
        return found

    def wanted(self, rows: np.ndarray, count: int) -> list[Schedule]:
        """Choose at most `count` of the programs `rows` int32 [N, ROW] to be measured next.

        They have the fastest predicted times, with several register tiles. Measured and pending programs are excluded.
        """
        seconds = self.seconds(rows)
        fitting = np.isfinite(seconds)
        order = ranked(rows[fitting], seconds[fitting], self.graph)[0]
        fresh = tuple(s for s in order if s not in self.known and s not in self.asked)
        return diverse(fresh, PER_REGISTER_TILE)[:count]

    def keep(self, schedule: Schedule, line: Line) -> None:
        """Record the measurement of a program's kernel."""
        measured = math.inf if line["seconds"] is None else float(line["seconds"])
        self.asked.discard(schedule)
        self.known[schedule] = measured
        self.feedback.add(schedule, self.graph.latency(schedule), measured)

    def fastest(self, count: int) -> np.ndarray:
        """Return the choices int64 [at most `count`, K] of the fastest kernels that succeeded, fastest first."""
        ran = sorted((s for s, seconds in self.known.items() if math.isfinite(seconds)), key=self.known.__getitem__)
        vectors = [vector for s in ran[:count] if (vector := self.choices.vector(s)) is not None]
        return np.array(vectors, dtype=np.int64).reshape(-1, len(self.choices.counts))


class MeasuredLearner(ColumnLearner):
    """A column learner that ranks programs by measured times and predictions that measurements correct (`Judge`).

    Settings beyond those of `ColumnLearner` are kernels, warm_kernels, temperature, remembered, updates (conf/fine_tune.yaml).
    """

    def __init__(
        self, settings: Mapping[str, Any], graphs: Sequence[ConstructionGraph], lines: Sequence[Line], seed: int
    ) -> None:
        """Create a learner with its own network. `lines` are earlier measurements of its tasks."""
        check(settings)
        constant = {f"final_{name}": settings[name] for name in ("learning_rate", "entropy")}
        super().__init__({**settings, **constant}, graphs, 1, seed)
        mine: dict[str, list[Line]] = {}
        for line in lines:
            mine.setdefault(line["operator"], []).append(line)
        self.judges = {choices: Judge(choices, mine.get(str(choices.graph.operator), ())) for choices in self.choices}
        warm = settings["warm_kernels"]
        self.turns = ((settings["kernels"] - warm, 1.0), (warm, float(settings["temperature"])))
        """The two rounds of measuring: (number of kernels to measure, temperature at which the policy draws them)."""

    def seconds(self, choices: Choices, chosen: np.ndarray) -> np.ndarray:
        """Return the seconds, measured or predicted by the task's judge, of programs with the choices `chosen` per column."""
        return self.judges[choices].seconds(choices.rows(chosen))

    def given(self, choices: Choices) -> Given:
        """Return the fastest measured kernels of a task, which replace some of the drawn programs."""
        return Given(self.judges[choices].fastest(self.settings["remembered"]))

    def next_task(self) -> Choices:
        """Draw the task whose kernels are measured next."""
        return self.choices[int(self.rng.integers(len(self.choices)))]

    def drawn(self, choices: Choices, temperature: float) -> np.ndarray:
        """Draw programs for a task from the policy, int32 [programs, ROW]; they may be illegal."""
        draws = self.rng.random((self.settings["programs"], len(choices.counts)))
        with torch.no_grad():
            chosen, _, _ = self.network(choices, draws, temperature)
        return choices.rows(chosen)

    def learn(self) -> None:
        """Train on `updates` batches of drawn programs and record their rewards."""
        self.rewards += [self.advance() for _ in range(self.settings["updates"])]


def check(settings: Mapping[str, Any]) -> None:
    """Check the settings of training with measured times. ValueError names a setting out of range.

    `ColumnLearner` checks the settings that all trainings of columns share.
    """
    least = {"kernels": 1, "updates": 1, "warm_kernels": 0, "remembered": 0}
    most = {"warm_kernels": settings["kernels"], "remembered": settings["programs"] // 2}
    for name, low in least.items():
        if not low <= settings[name] <= most.get(name, math.inf):
            bound = f"{low} to {most[name]}" if name in most else f"{low} or more"
            raise ValueError(f"columns.{name} is {settings[name]}; expected {bound}")
    if not settings["temperature"] > 0.0:
        raise ValueError(f"columns.temperature is {settings['temperature']}; expected above 0")


def measure(judge: Judge, rows: np.ndarray, count: int, timings: Timings) -> None:
    """Measure those `count` of the programs `rows` int32 [N, ROW] that the judge chooses, in order."""
    for schedule in judge.wanted(rows, count):
        judge.keep(schedule, timings.line(judge.graph, schedule, judge.graph.latency(schedule)))


def learn(
    config: DictConfig, card: dict[str, Any], ops: list[Operator], hardware: Hardware, timings: Timings, folder: Path
) -> tuple[int, float]:
    """Continue the training of a card's policy with measured times, and save it.

    Return (programs written, seconds), including earlier runs. ValueError names a setting that is out of range.
    """
    space, width = card["config"]["env"]["space"], card["config"]["agent"]["width"]
    graphs = [ConstructionGraph(op, hardware, space) for op in ops]
    learner = MeasuredLearner({**config.columns, "width": width}, graphs, timings.rows, config.seed)
    resumed = (folder / LAST).exists()
    if resumed:
        learner.restore(read_state(folder / LAST, lambda _: None, "another output=FOLDER"))
    else:
        learner.network.load_state_dict(load_columns(str(config.checkpoint), config.trust).state_dict())
    budget = MeasuredBudget(timings, config, folder, resumed)
    while budget.is_left():
        choices = learner.next_task()
        for count, temperature in learner.turns:
            measure(learner.judges[choices], learner.drawn(choices, temperature), count, timings)
        learner.learn()
        mean, learner.rewards = float(np.mean(learner.rewards)), []
        write_state(folder / LAST, {}, learner.state())
        budget.add_point(mean)
    whole(folder / POLICY, learner.save)
    return learner.num_timesteps, budget.elapsed
