"""Fine-tuning of policies that write programs column by column (see `measured_columns`).

Before every step of learning, kernels of one operator are measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from agents.columns.policy import load_columns
from agents.learners.stored import POLICY
from experiments.fine_tuning.measured_columns import Judge, MeasuredLearner
from experiments.fine_tuning.measured_reward import MeasuredBudget, Timings
from experiments.resuming.archive import read_state, write_state
from experiments.training.watch import LAST
from gensor_gym.construction import ConstructionGraph
from gensor_gym.files import whole
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


def measure(judge: Judge, rows: np.ndarray, count: int, timings: Timings) -> None:
    """Measure the `count` programs among rows int32 [N, ROW] that the judge selects, one after the other."""
    for schedule in judge.wanted(rows, count):
        judge.keep(schedule, timings.line(judge.graph, schedule, judge.graph.latency(schedule)))


def learn(
    config: DictConfig, card: dict[str, Any], ops: list[Operator], hardware: Hardware, timings: Timings, folder: Path
) -> tuple[int, float]:
    """Continue training the card's policy and save it; return (programs written, seconds), including earlier runs.

    ValueError names a setting that is out of range.
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
