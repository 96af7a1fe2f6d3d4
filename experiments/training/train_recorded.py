"""Train a policy in recorded tuning spaces of one kernel, of one device or of several at once.

`python -m experiments.train_recorded 'spaces=[FILE, FILE]' output=FOLDER`; then
`agents.tune(OTHER_FILE, "policy", checkpoint=FOLDER)`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from experiments.common.arguments import CONF
from experiments.common.commands import command_line, refusals, say_where
from experiments.common.jobs import locked
from experiments.training.lessons import Lesson, learn


def lesson_of(config: DictConfig) -> Lesson:
    """What a configuration (conf/train_recorded.yaml) asks to learn; ValueError names what is wrong with it."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    if not isinstance(plain["spaces"], list) or not plain["spaces"]:
        raise ValueError(f"spaces is {plain['spaces']!r}: expected a list of files, as in 'spaces=[a.json.gz, b.json.gz]'")
    return Lesson(
        tuple(map(str, plain["spaces"])), plain["agent"], plain["env"] or {}, plain["timing"], plain["steps"],
        plain["num_envs"], plain["seed"],
    )  # fmt: skip


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train_recorded")
def run(config: DictConfig) -> None:
    """One policy, unless the folder holds it."""
    console, begin, folder = Console(), time.perf_counter(), Path(config.output)
    with refusals(console, ValueError, OSError):
        lesson = lesson_of(config)
        lock = locked(folder)
        with console.status(f"{lesson.steps:,} steps"):
            card = learn(lesson, folder)
        lock.close()
    console.print(f"{card['kernel']} on {', '.join(card['devices'])}: {card['training_steps']:,} steps", highlight=False)
    say_where(console, begin, folder)


def main() -> None:
    """Command line."""
    command_line(run)
