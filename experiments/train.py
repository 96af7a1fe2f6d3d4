"""Train a policy.

`python -m experiments.train agent=ppo env.hardware=cascade_lake output=results/policies/ppo_cpu`

On the analytic tier the same seed and configuration give the same learning curve, number for number, whether the run was
stopped and resumed or not.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from stable_baselines3.common.logger import configure

from agents.cloning import examples, imitate
from agents.learned import read_card
from agents.learners import Learner, get_learner
from agents.seen import SeenVecEnv
from agents.sight import Sight
from experiments import train_columns
from experiments.checkpoints import load_checkpoint
from experiments.folders import make_folder
from experiments.settings import WANDB_MODES
from experiments.tracking import hint, track_training
from experiments.validation import Validation, evaluate
from experiments.variants import with_variants
from experiments.watch import CURVE, LAST, POLICY, VALIDATION, Watch, identity, read_rows, training_bar
from gensor_gym import operators
from gensor_gym.env.tasks import TaskSet
from gensor_gym.fingerprint import fingerprint
from gensor_gym.graph.layout import LAYOUT_VERSION


def write_card(config: dict[str, Any], folder: Path, seconds: float, steps: int, **more: object) -> None:
    """Configuration, data, cost and evaluation beside the policy."""
    parts = sorted({operators.part_of(op) for op in operators.resolve(config["operators"])})
    card = {
        "agent": config["agent"]["name"], "config": config, "layout": LAYOUT_VERSION, "fingerprint": fingerprint(),
        "split": f"v1 {', '.join(parts)}", "operators": config["operators"],
        "training_seconds": round(seconds, 1), "training_steps": steps,
        "date": datetime.date.today().isoformat(), "torch_threads": torch.get_num_threads(), **more,
    }  # fmt: skip
    temporary = folder / "card.json.tmp"
    temporary.write_text(json.dumps(card, indent=1) + "\n")
    temporary.replace(folder / "card.json")


def settings_of(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as plain values, checked; ValueError names a bad one."""
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    for name in ("curve_every", "eval_every", "checkpoint_every"):
        if not isinstance(config[name], int) or config[name] < 0:
            raise ValueError(f"{name} is {config[name]!r}; expected a number of steps, or 0 for never")
    for name, least in (("steps", 1), ("variants", 0)):
        if type(config[name]) is not int or config[name] < least:
            raise ValueError(f"{name} is {config[name]!r}; expected a whole number, {least} or more")
    if config["wandb"]["mode"] not in WANDB_MODES:
        raise ValueError(f"wandb.mode {config['wandb']['mode']!r}: expected one of {', '.join(WANDB_MODES)}")
    return config


def finished(folder: Path, config: dict[str, Any]) -> bool:
    """Whether the folder holds the policy of this very configuration, evaluated, under the present rules and model."""
    if not (folder / "card.json").exists() or not (folder / POLICY).exists():
        return False
    card = read_card(folder)
    same = identity(card["config"]) == identity(config)
    return same and card["fingerprint"] == fingerprint() and "evaluation" in card


def make_env(config: dict[str, Any], sight: type[Sight]) -> SeenVecEnv:
    """The environments that it learns in; ValueError names a bad argument."""
    from gensor_gym.env.sb3 import make_sb3

    known = with_variants(
        list(operators.resolve(config["operators"])), config["variants"], np.random.default_rng(config["seed"])
    )
    return SeenVecEnv(make_sb3(num_envs=config["num_envs"], operator=known, **config["env"]), sight)


def clone(config: dict[str, Any], learner: Learner, model: Any) -> None:
    """Behaviour cloning of a fresh model on the operators without their variants, where `clone` names a teacher."""
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


def make_validation(config: dict[str, Any]) -> Validation | None:
    """What is asked now and then how good the policy is; None where it never is. Always by the model."""
    arguments = {name: value for name, value in config["env"].items() if name in ("hardware", "space")}
    if config["eval_every"] == 0:
        return None
    return Validation(config["eval_operators"], arguments, config["eval_episodes"], config["seed"])


def begin(config: dict[str, Any], learner: Learner, env: SeenVecEnv, last: Path) -> tuple[Any, float, bool]:
    """The model that `last` holds, or a fresh one, where asked for cloned; the seconds it took so far; whether it was resumed."""
    if config["resume"] and last.exists():
        return *load_checkpoint(last, learner, env, identity(config)), True
    start = time.perf_counter()
    model = learner.make(config["agent"], env, config["seed"])
    clone(config, learner, model)
    return model, time.perf_counter() - start, False


def learn(config: dict[str, Any], folder: Path, console: Console) -> tuple[Any, float, bool]:
    """The model after all its steps, which is saved, seconds of training, and whether it was resumed.

    ValueError names a bad setting.
    """
    learner = get_learner(config["agent"]["name"])
    env, validation = make_env(config, learner.sight), make_validation(config)
    model, spent, resumed = begin(config, learner, env, folder / LAST)
    if config["tensorboard"]:
        model.set_logger(configure(str(folder / "tensorboard"), ["tensorboard"]))
    with training_bar(console) as progress:
        watch = Watch(folder, progress, learner, config, validation, spent)
        left = max(0, config["steps"] - model.num_timesteps)
        every = config["agent"].get("log_interval", 1)
        model.learn(left, callback=watch, log_interval=every, reset_num_timesteps=not resumed)
    env.close()
    if validation is not None:
        validation.close()
    model.save(folder / POLICY, exclude=["rollout_buffer", "replay_buffer", "ep_info_buffer", "ep_success_buffer"])
    return model, watch.seconds, resumed


def run(config: dict[str, Any], folder: Path, console: Console) -> dict[str, Any]:
    """Train, save policy and card, evaluate on the validation split; the scores."""
    how = train_columns.learn if config["agent"]["name"] == train_columns.AGENT else learn
    model, seconds, resumed = how(config, folder, console)
    write_card(config, folder, seconds, model.num_timesteps, resumed=resumed)
    scores = evaluate(config, folder)
    write_card(config, folder, seconds, model.num_timesteps, resumed=resumed, evaluation=scores)
    (folder / LAST).unlink(missing_ok=True)
    return scores


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
def main(cfg: DictConfig) -> None:
    """One run, or what is left of it."""
    torch.set_num_threads(cfg.torch_threads)
    console = Console()
    try:
        config = settings_of(cfg)
        folder = make_folder(config["output"])
        if config["resume"] and finished(folder, config):
            console.print(f"{folder} holds this very policy: {read_card(folder)['evaluation']}")
            return
        scores = run(config, folder, console)
    except ValueError as error:
        sys.exit(str(error))
    tracked = track_training(config, read_rows(folder / CURVE), read_rows(folder / VALIDATION), scores, folder)
    console.print(f"policy and card in {folder}: {scores}")
    console.print(hint(tracked))


if __name__ == "__main__":
    main()
