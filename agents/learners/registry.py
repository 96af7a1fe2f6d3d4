"""How policies are learned, and the registry of the ways there are.

A learner makes a model of stable-baselines3 from settings (`conf/agent/NAME.yaml`) and environments, and
says how probable a model finds every action. Training (`gensor train`) and strategies (`agents.policies.ppo`) know no
more of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from agents.learners.observer import Observer


@dataclass(frozen=True)
class Learner:
    """A method of training a policy."""

    make: Callable[[Mapping[str, Any], Any, int | None], Any]
    """(settings, `VecEnv`, seed or None) -> a fresh model, which has `policy`, `learn` and `num_timesteps`."""
    load: Callable[[Path], Any]
    """(file of stable-baselines3) -> its model. Runs the code that the file holds: see `agents.learners.loading`."""
    logits: Callable[[Any, np.ndarray, np.ndarray], np.ndarray]
    """(model, observations [B, O], masks bool [B, N]) -> log-probabilities up to a constant [B, N], -inf if not legal."""
    values: Callable[[Any, np.ndarray], np.ndarray]
    """(model, observations [B, O]) -> expected returns float [B] from there on."""
    observer: type[Observer] = Observer
    """Observer of the policy."""


LEARNERS: dict[str, str] = {
    "a2c": "agents.learners.masked.a2c:A2C",
    "dqn": "agents.learners.masked.q:DQN_LEARNER",
    "qrdqn": "agents.learners.masked.q:QRDQN_LEARNER",
    "ppo": "agents.learners.masked.ppo:PPO",
    "ppo_axes": "agents.learners.masked.ppo:PPO_AXES",
    "ppo_successors": "agents.learners.masked.ppo:PPO_SUCCESSORS",
}
"""Name -> module:attribute of a `Learner`. A file of that name in conf/agent/ makes it known to the command line."""


def get_learner(name: str) -> Learner:
    """The learner of that name; ValueError names those there are."""
    if name not in LEARNERS:
        raise ValueError(
            f"no agent {name!r} that walks on the graph; such agents are {sorted(LEARNERS)} (policies of columns are for the "
            "strategies columns and columns_annealing)"
        )
    module, _, attribute = LEARNERS[name].partition(":")
    return getattr(import_module(module), attribute)
