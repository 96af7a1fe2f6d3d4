"""Train policies that walk on the construction graph, with learners of stable-baselines3, for `gensor train`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from stable_baselines3.common.logger import configure

from agents.cli.stopping import at_safe_points
from agents.learners.cloning import examples, imitate
from agents.learners.loading import save_policy
from agents.learners.observed import ObservedVecEnv
from agents.learners.registry import Learner, get_learner
from agents.learners.stored import POLICY
from agents.training.checkpoints import load_checkpoint
from agents.training.operators.drawn import drawn_for
from agents.training.operators.variants import with_variants
from agents.training.watch import LAST, Validation, Watch, identity, training_bar
from gensor_gym import operators
from gensor_gym.env.seeds import seed_of_run
from gensor_gym.env.tasks import TaskSet
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.files import whole


@dataclass(frozen=True)
class Ground:
    """Functions that make the learner and the environments of one kind of walking policy."""

    learner: Callable[[str], Learner]
    """Function from an agent's name to its learner."""
    training: Callable[[dict[str, Any]], Any]
    """Function from a configuration to the training environments for stable-baselines3."""
    judged: Callable[[Any], Sequence[Any]]
    """Function from the names of operators in a configuration to operators for validation.

    `envs` makes the environments of one of them.
    """
    envs: Callable[..., Any]


def _constructions(config: dict[str, Any]) -> Any:
    from gensor_gym.env.sb3 import make_sb3

    rng = np.random.default_rng(config["seed"])
    known = with_variants(list(operators.resolve(config["operators"])), config["variants"], rng)
    return make_sb3(num_envs=config["num_envs"], operator=[*known, *drawn_for(config, rng)], **config["env"])


CONSTRUCTIONS = Ground(get_learner, _constructions, operators.resolve, ConstructVectorEnv)


def clone(config: dict[str, Any], learner: Learner, model: Any) -> None:
    """Train a fresh model by behaviour cloning on the configured operators, without their variants.

    Nothing happens unless `clone` names a teacher.
    """
    if config["clone"] is None:
        return
    if not hasattr(model.policy, "evaluate_actions"):
        raise ValueError(f"agent {config['agent']['name']!r} has values and no policy that could be cloned; clone must be null")
    begin, rng, how = time.perf_counter(), np.random.default_rng(config["seed"]), config["cloning"]
    tasks = TaskSet(operators.resolve(config["operators"]), config["env"]["hardware"], config["env"]["space"])
    shown = examples(learner, tasks, config["clone"], how["ways"], config["env"]["step_cost"], rng)
    losses = imitate(model, shown, how["epochs"], how["batch_size"], how["learning_rate"], config["seed"])
    spent = time.perf_counter() - begin
    lost = f"{losses[0]:.3f} to {losses[-1]:.3f}"
    print(f"cloned {len(shown.returns)} states of {config['clone']} in {spent:.0f} s: loss {lost}", flush=True)


def make_validation(config: dict[str, Any], ground: Ground) -> Validation | None:
    """Make the periodic validation of a training's policy by the model; None if it is off."""
    arguments = {name: value for name, value in config["env"].items() if name in ("hardware", "space")}
    if config["eval_every"] == 0:
        return None
    judged = ground.judged(config["eval_operators"])
    return Validation(judged, arguments, config["eval_episodes"], config["seed"], ground.envs)


def learn(config: dict[str, Any], folder: Path, console: Console, ground: Ground = CONSTRUCTIONS) -> tuple[Any, float, bool]:
    """Train and save a policy that walks; return (model, seconds of training, whether it was resumed).

    ValueError names a bad setting.
    """
    learner = ground.learner(config["agent"]["name"])
    env, validation = ObservedVecEnv(ground.training(config), learner.observer), make_validation(config, ground)
    resumed, start = config["resume"] and (folder / LAST).exists(), time.perf_counter()
    if resumed:
        model, spent = load_checkpoint(folder / LAST, learner, env, identity(config))
    else:
        model = learner.make(config["agent"], env, seed_of_run(config["seed"]))
        clone(config, learner, model)
        spent = time.perf_counter() - start
    if config["tensorboard"]:
        model.set_logger(configure(str(folder / "tensorboard"), ["tensorboard"]))
    with training_bar(console) as progress:
        watch = Watch(folder, progress, learner, config, validation, spent)
        left = max(0, config["steps"] - model.num_timesteps)
        every = config["agent"].get("log_interval", 1)
        with at_safe_points():
            model.learn(left, callback=watch, log_interval=every, reset_num_timesteps=not resumed)
    env.close()
    if validation is not None:
        validation.close()
    whole(folder / POLICY, lambda temporary: save_policy(temporary, model))
    return model, watch.seconds, resumed
