"""Write and read checkpoints of a training, from which it resumes with an identical learning curve.

A checkpoint contains the model (`agents.training.state.model`), the running episodes, and every random stream (torch, NumPy,
Python, and one for each environment). It must be written between rollouts, after the model has learned from the last rollout.
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
from agents.training.state.archive import read_state, write_state
from agents.training.state.model import restore_model, state_of_model
from gensor_gym.env.seeds import seed_of_run


def save_checkpoint(path: Path, model: Any, config: dict[str, Any], seconds: float) -> None:
    """Write a checkpoint of a model and of the `seconds` of training so far.

    An earlier file is replaced only when the new file is complete.
    """
    state = {
        "seconds": seconds, "model": state_of_model(model), "environments": model.get_env().unwrapped.state(),
        "torch": torch.get_rng_state(), "numpy": np.random.get_state(), "python": random.getstate(),
    }  # fmt: skip
    write_state(path, config | bound(config["operators"], config["env"]), state)


def load_checkpoint(path: Path, learner: Learner, env: VecEnv, config: dict[str, Any]) -> tuple[Any, float]:
    """Load a checkpoint as (model, seconds of training so far), and restore `env` and the random streams of this process.

    ValueError if the configuration differs. The check precedes any use of the stored state.
    """
    here = config | bound(config["operators"], config["env"])
    state = read_state(path, lambda begun: check_same(path, begun, here))
    model = learner.make(config["agent"], env, seed_of_run(config["seed"]))
    restore_model(model, state["model"])
    env.unwrapped.restore(state["environments"])  # type: ignore[attr-defined]
    torch.set_rng_state(state["torch"])
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])
    return model, state["seconds"]


def check_same(path: Path, begun: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Check that the settings `begun` in a checkpoint equal the current ones, `here`.

    ValueError names the settings that differ.
    """
    names = dict.fromkeys([*here, *(["drawn"] if "drawn" in begun else [])])  # "drawn" exists only if operators were drawn
    if differing := [name for name in names if begun.get(name) != here.get(name)]:
        raise ValueError(
            f"{path} was trained with another {', '.join(differing)}; begin anew with resume=false or another output"
        )
