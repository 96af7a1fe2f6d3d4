"""The fixed tasks of the leaderboard: `conf/leaderboard.yaml`, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common.settings import ROOT
from gensor_gym import hardware as machines
from gensor_gym import operators
from gensor_gym.foreign import read_yaml
from gensor_gym.measure.records.tables import file_name
from gensor_gym.measure.session import Budget

SUITE = ROOT / "conf" / "leaderboard.yaml"
PARTS = ("hardware", "backend", "space", "operator")
TIERS = ("analytic", "recorded")
"""Tiers whose rewards come out the same, to the last digit, wherever they are computed."""


@dataclass(frozen=True)
class SuiteTask:
    """An operator on a hardware, in a space, rewarded by a tier that can be computed again; all as text."""

    hardware: str
    backend: str
    space: str
    operator: str

    @property
    def name(self) -> str:
        """Letters, digits and underscores: name of its replay file."""
        return f"{self.hardware}_{self.space}_{file_name(operators.resolve_one(self.operator))}"

    @property
    def arguments(self) -> dict[str, str]:
        """Arguments of the environment."""
        return {part: getattr(self, part) for part in PARTS}


@dataclass(frozen=True)
class Suite:
    """Tasks, and what a strategy may spend on each."""

    tasks: tuple[SuiteTask, ...]
    budget: Budget


def read_suite(path: Path = SUITE) -> Suite:
    """Read a suite; ValueError names what is wrong with it."""
    try:
        plain: Any = read_yaml(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"suite {path} does not read: {error}") from error
    if not isinstance(plain, dict) or set(plain) != {"budget", "tasks"} or not plain["tasks"]:
        raise ValueError(f"suite {path}: expected 'budget' and a list of 'tasks'")
    try:
        budget = Budget(**plain["budget"])
    except TypeError as error:
        raise ValueError(f"suite {path}, budget: expected trials, evaluations and seconds, not {plain['budget']!r}") from error
    tasks = tuple(_task(entry, path) for entry in plain["tasks"])
    if len({task.name for task in tasks}) < len(tasks):
        raise ValueError(f"suite {path} names a task twice")
    return Suite(tasks, budget)


def _task(entry: object, path: Path) -> SuiteTask:
    """One entry, its operator and hardware by their full names."""
    if not isinstance(entry, dict) or set(entry) != set(PARTS):
        raise ValueError(f"suite {path}: a task has {', '.join(PARTS)}, not {entry!r}")
    if entry["backend"] not in TIERS:
        raise ValueError(f"suite {path}: backend {entry['backend']!r} is none of {', '.join(TIERS)}")
    operator = str(operators.resolve_one(entry["operator"]))
    return SuiteTask(machines.get(entry["hardware"]).name, entry["backend"], entry["space"], operator)
