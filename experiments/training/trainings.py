"""The kinds of training: for each agent, how a policy is trained and evaluated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from agents.columns.choices import SEES, is_joint
from agents.columns.policy import ColumnWriter
from agents.fused.policy import GirPpo
from agents.policies.ppo import Ppo
from experiments.training import columns as train_columns
from experiments.training import fused as train_fused
from experiments.training import walk as train_walk
from gensor_gym.construction import ConstructionGraph


@dataclass(frozen=True)
class Training:
    """A kind of training."""

    learn: Callable[[dict[str, Any], Path, Console], tuple[Any, float, bool]]
    """(configuration, folder, console) -> (saved learner with `num_timesteps`, seconds of training, whether it was resumed)."""
    strategy: type[Ppo | ColumnWriter | GirPpo]
    """Strategy that constructs programs with the policy."""
    judged_on: Callable[[ConstructionGraph], bool] = lambda _graph: True
    """Whether such policies can be evaluated on a task."""
    sees: int | None = None
    """Version of the policies' observation, if neither the layout of a row nor the fingerprint implies it."""
    shows_itself: bool = True
    """Whether its learner writes TensorBoard events itself."""
    fused: bool = False
    """Whether its tasks are fused operators."""


WALK = Training(train_walk.learn, Ppo)
"""Training of all agents in `agents.learners.registry`."""
OTHERS = {
    ColumnWriter.agent: Training(train_columns.learn, ColumnWriter, is_joint, SEES, shows_itself=False),
    GirPpo.agent: Training(train_fused.learn, GirPpo, fused=True),
}


def training_of(agent: str) -> Training:
    """The training of an agent, `WALK` if there is no special one. `WALK.learn` reports an unknown agent."""
    return OTHERS.get(agent, WALK)
