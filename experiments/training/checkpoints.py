"""Checkpoints of a training from which it goes on as if it had never stopped: the same learning curve, number for number.

stable-baselines3 saves networks, optimiser and counters. Beside these a checkpoint holds the running episodes, the observation
that comes next, every random stream (torch, NumPy, Python, one for each environment) and the replay buffer of a learner that has
one. It is to be written between rollouts, when a rollout buffer has been learned from.
"""

from __future__ import annotations

import io
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv

from agents.learners.registry import Learner
from agents.policies.training_tasks import bound
from experiments.common.results import whole

_MODEL, _STATE, _REPLAY = "model.zip", "state.pkl", "replay.pkl"


def save_checkpoint(path: Path, model: Any, config: dict[str, Any], seconds: float) -> None:
    """Write the file, with the seconds of training so far; one that was there before stays whole until this one is complete."""
    state = {
        "config": config | _tasks_of(config), "seconds": seconds,
        "environments": model.get_env().unwrapped.state(), "observations": model._last_obs,
        "torch": torch.get_rng_state(), "numpy": np.random.get_state(), "python": random.getstate(),
    }  # fmt: skip
    inner = io.BytesIO()
    model.save(inner)

    def write(temporary: Path) -> None:
        with zipfile.ZipFile(temporary, "w") as file:
            file.writestr(_MODEL, inner.getvalue())
            file.writestr(_STATE, pickle.dumps(state))
            if getattr(model, "replay_buffer", None) is not None:
                with file.open(_REPLAY, "w", force_zip64=True) as stream:
                    pickle.dump(model.replay_buffer, stream)

    whole(path, write)


def load_checkpoint(path: Path, learner: Learner, env: VecEnv, config: dict[str, Any]) -> tuple[Any, float]:
    """The model, and the seconds it took so far; ValueError where the configuration was another.

    Sets `env` and the random streams of this process to where they were.
    """
    with zipfile.ZipFile(path) as file:
        if _STATE not in file.namelist():
            raise ValueError(f"{path} is no checkpoint of this version; begin anew with resume=false")
        state = pickle.loads(file.read(_STATE))
        here = config | _tasks_of(config)
        differing = [name for name in here if state["config"].get(name) != here[name]]
        if differing:
            raise ValueError(
                f"{path} was trained with another {', '.join(differing)}; begin anew with resume=false or another output"
            )
        model = learner.load(io.BytesIO(file.read(_MODEL)), env)
        if _REPLAY in file.namelist():
            with file.open(_REPLAY) as stream:
                model.replay_buffer = pickle.load(stream)
    env.unwrapped.restore(state["environments"])  # type: ignore[attr-defined]
    model._last_obs = state["observations"]
    torch.set_rng_state(state["torch"])
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])
    return model, state["seconds"]


def _tasks_of(config: dict[str, Any]) -> dict[str, Any]:
    """What binds a checkpoint to the tasks of its configuration."""
    return bound(config["operators"], config["env"])
