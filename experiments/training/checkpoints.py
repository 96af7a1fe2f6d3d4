"""Checkpoints of a training, from which it resumes with an identical learning curve.

A checkpoint holds the model (`experiments.resuming.model`), the running episodes, and every random stream (torch, NumPy, Python,
one for each environment). It must be written between rollouts, when a rollout buffer has been learned from.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv

from agents.learners.registry import Learner
from agents.policies.training_tasks import bound
from experiments.resuming.archive import read_state, write_state
from experiments.resuming.model import restore_model, state_of_model
from gensor_gym.env.seeds import seed_of_run


def save_checkpoint(path: Path, model: Any, config: dict[str, Any], seconds: float) -> None:
    """Write the file, with the seconds of training so far; one that was there before stays whole until this one is complete."""
    state = {
        "seconds": seconds, "model": state_of_model(model), "environments": model.get_env().unwrapped.state(),
        "torch": torch.get_rng_state(), "numpy": np.random.get_state(), "python": random.getstate(),
    }  # fmt: skip
    write_state(path, config | _tasks_of(config), state)


def load_checkpoint(path: Path, learner: Learner, env: VecEnv, config: dict[str, Any]) -> tuple[Any, float]:
    """The model, and the seconds it took so far; ValueError if the configuration was another, before any state is read.

    Sets `env` and the random streams of this process to where they were.
    """
    here = config | _tasks_of(config)
    state = read_state(path, lambda begun: check_same(path, begun, here))
    model = learner.make(config["agent"], env, seed_of_run(config["seed"]))
    restore_model(model, state["model"])
    env.unwrapped.restore(state["environments"])  # type: ignore[attr-defined]
    torch.set_rng_state(state["torch"])
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])
    return model, state["seconds"]


def check_same(path: Path, begun: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """ValueError names the settings that differ from a checkpoint's."""
    names = dict.fromkeys([*here, *(["drawn"] if "drawn" in begun else [])])  # which stands there only where something was drawn
    if differing := [name for name in names if begun.get(name) != here.get(name)]:
        raise ValueError(
            f"{path} was trained with another {', '.join(differing)}; begin anew with resume=false or another output"
        )


def _tasks_of(config: dict[str, Any]) -> dict[str, Any]:
    """Facts that bind a checkpoint to its configuration's tasks."""
    return bound(config["operators"], config["env"])
