"""Learners, which are methods of training policies, and their registry.

A learner makes a stable-baselines3 model from settings (`conf/agent/NAME.yaml`) and environments, and computes a model's
probabilities of actions. Training (`gensor train`) and strategies (`agents.policies.ppo`) use learners only through this
interface.
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
    """A method of training a policy, as functions to make, load and evaluate its models."""

    make: Callable[[Mapping[str, Any], Any, int | None], Any]
    """Make an untrained model from (settings, `VecEnv`, seed or None). The model has `policy`, `learn` and `num_timesteps`."""
    load: Callable[[Path], Any]
    """Load the model in a file of stable-baselines3. Code in the file can run: see `agents.learners.loading`."""
    logits: Callable[[Any, np.ndarray, np.ndarray], np.ndarray]
    """Return log-probabilities [B, N] from (model, observations [B, O], masks bool [B, N]).

    The log-probabilities are known up to a constant, and -inf for illegal actions.
    """
    values: Callable[[Any, np.ndarray], np.ndarray]
    """Return the expected return from each state, float [B], from (model, observations [B, O])."""
    observer: type[Observer] = Observer
    """Class of the observer that makes the policy's observations."""


LEARNERS: dict[str, str] = {
    "a2c": "agents.learners.masked.a2c:A2C",
    "dqn": "agents.learners.masked.q:DQN_LEARNER",
    "qrdqn": "agents.learners.masked.q:QRDQN_LEARNER",
    "ppo": "agents.learners.masked.ppo:PPO",
    "ppo_axes": "agents.learners.masked.ppo:PPO_AXES",
    "ppo_successors": "agents.learners.masked.ppo:PPO_SUCCESSORS",
}
"""Name -> "module:attribute" of a `Learner`. Commands know a name if conf/agent/ has a file of that name."""


def get_learner(name: str) -> Learner:
    """Get a learner by name. ValueError for an unknown name lists the known names."""
    if name not in LEARNERS:
        raise ValueError(
            f"no agent {name!r} that walks on the graph; such agents are {sorted(LEARNERS)} (policies of columns are for the "
            "strategies columns and columns_annealing)"
        )
    module, _, attribute = LEARNERS[name].partition(":")
    return getattr(import_module(module), attribute)
