"""Train a policy in recorded tuning spaces of one kernel, of one device or of several at once.

Run `python -m experiments train_recorded 'spaces=[FILE, FILE]' output=FOLDER`, then `agents.tune(OTHER_FILE, "policy",
checkpoint=FOLDER)`.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

from agents.cli.checks import check_whole
from agents.cli.command import command
from agents.learners.loading import save_policy
from agents.learners.registry import get_learner
from agents.learners.stored import POLICY
from agents.policies.card import CARD, read_card
from agents.runs.files import write_text
from agents.runs.journal import locked
from agents.runs.settings import digest_of_file, short_hash
from agents.training.watch import CURVE, last_episodes
from gensor_gym.env import RECORDED
from gensor_gym.env.recorded import RecordedEnv
from gensor_gym.env.seeds import seed_of_run
from gensor_gym.files import whole
from gensor_gym.registry import check_known
from gensor_gym.spaces import TuningSpace, load_space
from gensor_gym.spaces.space import TIMINGS

AGENTS = ("ppo", "a2c")
"""Agents that can be trained here: they need masks of actions, but no features of constructions."""
PROCESS = ("horizon", "discount", "step_cost", "shaping")
"""Arguments of the environment that a training may set."""


@dataclass(frozen=True)
class RecordedTraining:
    """Settings of a policy's training in recorded spaces."""

    spaces: tuple[str, ...]
    """Files with recordings of one kernel on one or several devices. The environments use them in turn."""
    agent: Mapping[str, Any]
    """Settings of the agent, as in `conf/agent/NAME.yaml`."""
    env: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `RecordedEnv`, each one of PROCESS."""
    timing: str = "reported"
    steps: int = 200_000
    num_envs: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        if self.agent.get("name") not in AGENTS:
            raise ValueError(f"agent {self.agent.get('name')!r} does not learn in recorded spaces; these do: {AGENTS}")
        if isinstance(self.spaces, str) or not self.spaces:
            raise ValueError(f"spaces is {self.spaces!r}: expected a list of one file or more")
        if not isinstance(self.env, Mapping) or set(self.env) - set(PROCESS):
            raise ValueError(f"env is {self.env!r}: expected values for some of {PROCESS}")
        check_known("timing", self.timing, TIMINGS)
        layers, batch = self.agent.get("net_arch"), self.agent.get("batch_size", 1)
        if not isinstance(layers, list) or not all(type(width) is int and width > 0 for width in [*layers, batch]):
            raise ValueError(f"agent.net_arch {layers!r}, agent.batch_size {batch!r}: expected widths in a list, and 1 or more")
        check_whole(vars(self), 1, "steps", "num_envs")
        check_whole(vars(self), 0, "seed")
        if self.num_envs < len(self.spaces):
            raise ValueError(f"num_envs is {self.num_envs}; expected {len(self.spaces)}, one for each space, or more")

    @property
    def config(self) -> dict[str, Any]:
        """The settings as text and numbers, with files by name. They label the learning curves in `gensor report`."""
        names = ", ".join(Path(path).name.partition(".")[0] for path in self.spaces)
        return {
            "spaces": names, "agent": dict(self.agent), "env": dict(self.env), "timing": self.timing, "steps": self.steps,
            "num_envs": self.num_envs, "seed": self.seed,
        }  # fmt: skip

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that the policy depends on: the settings, with files by content, and the environment's version."""
        return {**self.config, "spaces": [digest_of_file(path) for path in self.spaces], "environment": RECORDED}


class RecordedVecEnv(DummyVecEnv):
    """Environments for stable-baselines3 of several recorded spaces with the same parameters, stepped one after another."""

    def __init__(self, training: RecordedTraining) -> None:
        spaces = [load_space(path) for path in training.spaces]
        check_alike(spaces)
        chosen = [spaces[i % len(spaces)] for i in range(training.num_envs)]
        made = [RecordedEnv(space, timing=training.timing, **training.env) for space in chosen]
        super().__init__([lambda env=env: env for env in made])  # type: ignore[misc]
        self.discount = made[0].discount


class Curve(BaseCallback):
    """Callback that records mean return and length over the last hundred episodes after every rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, float]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        if (row := last_episodes(self.model)) is not None:
            self.rows.append(row)


def check_alike(spaces: list[TuningSpace]) -> None:
    """Check that all spaces vary the same parameters, so that one policy can act in each of them; ValueError if not.

    Parameters with a single value do not count.
    """
    for space in spaces:
        if space.variables != spaces[0].variables:
            raise ValueError(
                f"{space.source} has parameters {space.variables}, {spaces[0].source} has {spaces[0].variables}: a policy takes "
                "spaces with the same ones in the same order"
            )


def learn(training: RecordedTraining, folder: Path) -> dict[str, Any]:
    """Train the policy on one thread, unless the folder already has it, and return its card.

    policy.safetensors and curve.jsonl are written, and card.json last. Trainings with equal settings have exactly the same curve.
    """
    if (card := known_card(training, folder)) is not None:
        return card
    torch.set_num_threads(1)
    begin, learner, curve = time.perf_counter(), get_learner(training.agent["name"]), Curve()
    envs = RecordedVecEnv(training)
    monitored: Any = VecMonitor(envs)
    monitored.discount = envs.discount
    model = learner.make(training.agent, monitored, seed_of_run(training.seed))
    model.learn(training.steps, callback=curve)
    spaces = [env.space for env in envs.envs[: len(training.spaces)]]  # type: ignore[attr-defined]
    card = {
        "agent": training.agent["name"], "env": dict(training.env), "lesson": training.identity, "config": training.config,
        "parameters": [[name, list(values)] for name, values in spaces[0].variables],
        "devices": [space.device for space in spaces], "kernel": spaces[0].kernel,
        "best": [space.configuration(space.best(training.timing)) for space in spaces], "training_steps": model.num_timesteps,
        "training_seconds": round(time.perf_counter() - begin, 1), "date": datetime.date.today().isoformat(),
    }  # fmt: skip
    (folder / CARD).unlink(missing_ok=True)  # the card of the policy that is replaced
    whole(folder / POLICY, lambda temporary: save_policy(temporary, model))
    write_text(folder / CURVE, "".join(json.dumps(row) + "\n" for row in curve.rows))
    write_text(folder / CARD, json.dumps(card, indent=1) + "\n")
    return card


def learn_at(training: tuple[RecordedTraining, Path]) -> dict[str, Any]:
    """Call `learn` with its arguments in a pair, for a pool of processes."""
    return learn(*training)


def known_card(training: RecordedTraining, folder: Path) -> dict[str, Any] | None:
    """Return the card of a folder that contains the policy of exactly this training; None if it does not."""
    if not (folder / CARD).exists() or not (folder / POLICY).exists():
        return None
    card = read_card(folder)
    return card if short_hash(card.get("lesson")) == short_hash(training.identity) else None


def training_of(config: DictConfig) -> RecordedTraining:
    """Read the settings of a training from a configuration (conf/train_recorded.yaml). ValueError names an invalid setting."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    if not isinstance(plain["spaces"], list) or not plain["spaces"]:
        raise ValueError(f"spaces is {plain['spaces']!r}: expected a list of files, as in 'spaces=[a.json.gz, b.json.gz]'")
    return RecordedTraining(
        tuple(map(str, plain["spaces"])), plain["agent"], plain["env"] or {}, plain["timing"], plain["steps"],
        plain["num_envs"], plain["seed"],
    )  # fmt: skip


@command("train_recorded")
def main(config: DictConfig, console: Console) -> Path:
    """Train a policy, unless the folder already has it; return the folder."""
    training, folder = training_of(config), Path(config.output)
    with locked(folder), console.status(f"{training.steps:,} steps"):
        card = learn(training, folder)
    console.print(f"{card['kernel']} on {', '.join(card['devices'])}: {card['training_steps']:,} steps", highlight=False)
    return folder
