"""Train a policy in recorded tuning spaces of one kernel, of one device or of several at once.

Run `python -m experiments train_recorded 'spaces=[FILE, FILE]' output=FOLDER`, then `agents.tune(OTHER_FILE, "policy",
checkpoint=FOLDER)`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from experiments.commands.command import command
from experiments.common.journal import locked
from experiments.training.recorded.spaces import RecordedTraining, learn


def training_of(config: DictConfig) -> RecordedTraining:
    """The training of a configuration (conf/train_recorded.yaml); ValueError names an invalid setting."""
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
