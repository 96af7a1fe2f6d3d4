"""Policies of a study. Missing policies are trained in parallel, each in a subprocess of `gensor train`.

`gensor train` resumes from its last checkpoint, so that a stopped training is not lost.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from agents.cli.parent import PARENT
from agents.learners.stored import POLICY
from agents.policies.card import CARD, read_card
from agents.policies.training_tasks import is_current
from agents.runs.pool import ONE_THREAD
from agents.runs.settings import ROOT
from agents.training.trainings import training_of
from gensor_gym import operators

NEEDED = (POLICY, CARD)
"""Files that a policy's folder must contain."""


@dataclass(frozen=True)
class Trained:
    """A trained policy."""

    folder: Path
    seed: int
    seconds: float
    """Training time from the card; processor seconds for agents that count these (`columns`)."""
    steps: int
    """Number of training steps of the environment."""


def folder_of(pattern: str, seed: int, hardware: str) -> Path:
    """Folder of a training seed: the pattern with `{seed}` and `{hardware}` replaced.

    ValueError if the pattern has no `{seed}`.
    """
    if "{seed}" not in pattern:
        raise ValueError(f"folder {pattern!r}: expected {{seed}} in it, and {{hardware}} if several are trained for")
    return Path(pattern.format(seed=seed, hardware=hardware)).resolve()


def train_missing(
    pattern: str, seeds: Sequence[int], hardware: str, space: str, overrides: Mapping[str, Any], processes: int, split: str = "v1"
) -> list[Trained]:
    """The policies of all seeds. Missing policies are trained on the split's train part, with `overrides` of `gensor train`.

    ValueError for a policy with another fingerprint or other settings; RuntimeError if a training failed.
    """
    folders = {seed: folder_of(pattern, seed, hardware) for seed in seeds}
    missing = [seed for seed, folder in folders.items() if not all((folder / name).exists() for name in NEEDED)]
    given = {"operators": f"split/{split}/train", **overrides}
    commands = [command_of(folders[seed], seed, hardware, space, given) for seed in missing]
    running: list[subprocess.Popen[bytes]] = []
    with ThreadPoolExecutor(max(1, processes)) as pool:
        try:
            list(pool.map(lambda command: _run(command, running), commands))
        except BaseException:  # at a stop no training begins, and the running trainings save at their next safe point
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.terminate()
            raise
    return [_checked(folders[seed], seed, hardware, space, overrides, split) for seed in seeds]


def command_of(folder: Path, seed: int, hardware: str, space: str, overrides: Mapping[str, Any]) -> list[str]:
    """Command that trains one policy on one thread."""
    fixed = {"seed": seed, "output": folder, "env.hardware": hardware, "env.space": space, "torch_threads": 1}
    return [sys.executable, "-m", "experiments", "train", *(f"{name}={value}" for name, value in {**overrides, **fixed}.items())]


def _run(command: list[str], running: list[subprocess.Popen[bytes]]) -> None:
    """Train in a process, which is appended to `running`; its output goes to train.log next to the policy."""
    folder = Path(next(word for word in command if word.startswith("output=")).removeprefix("output="))
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **dict.fromkeys(ONE_THREAD, "1"), PARENT: str(os.getpid())}
    with (folder / "train.log").open("a", encoding="utf-8") as log:
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT) as process:
            running.append(process)
    if process.returncode != 0:
        last = (folder / "train.log").read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise RuntimeError(f"training of {folder} failed: {' '.join(last)} (more in {folder / 'train.log'})")


def _checked(folder: Path, seed: int, hardware: str, space: str, overrides: Mapping[str, Any], split: str) -> Trained:
    """The policy of a folder; ValueError if its training differs from the training requested."""
    card = read_card(folder)
    config = OmegaConf.create(card["config"])
    before = {name: card["agent"] if name == "agent" else OmegaConf.select(config, name.removeprefix("+")) for name in overrides}
    differing = {name: found for name, found in before.items() if found != overrides[name]}
    if differing:
        asked_for = {name: overrides[name] for name in differing}
        raise ValueError(f"policy {folder} was trained with {differing}, asked for are {asked_for}; give it another folder")
    env = card["config"]["env"]
    found = (env["hardware"], env["space"], card["config"]["seed"])
    if found != (asked := (hardware, space, seed)):
        raise ValueError(f"policy {folder}: hardware, space and seed are {found}, asked for are {asked}")
    if card.get("sees") != (sees := training_of(card["agent"]).sees):
        raise ValueError(f"policy {folder} sees what version {card.get('sees')} of its agent sees, this is version {sees}")
    if {operators.part_of(op, split) for op in operators.resolve(card["operators"])} != {"train"}:
        raise ValueError(f"policy {folder} was trained on {card['operators']}: expected operators of the train part")
    if not is_current(card):
        raise ValueError(f"policy {folder} was trained on tasks of other rules or another model: their fingerprints differ here")
    return Trained(folder, seed, float(card["training_seconds"]), int(card["training_steps"]))
