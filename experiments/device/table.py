"""Operators and experiments of the stages, read from conf without Hydra, which a GPU machine may lack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gensor_gym import operators
from gensor_gym.operators.types import Operator

CONF = Path(__file__).resolve().parents[2] / "conf"


@dataclass(frozen=True)
class Contest:
    """A comparison of strategies that search with equal numbers of trials."""

    operators: tuple[Operator, ...]
    strategies: Mapping[str, tuple[str, Mapping[str, object]]]
    """Strategy's name in the comparison -> (registered name, hyperparameters). All are compared with the first."""
    trials: int
    """Trials of each search."""
    seeds: tuple[int, ...] = (0,)


@cache
def read_operators() -> dict[str, Operator]:
    """Return the operators that are timed against torch by short name, the most important first; ValueError for invalid text."""
    return {name: operators.parse(text) for name, text in _content(CONF / "bench" / "gpu.yaml")["operators"].items()}


@cache
def read_experiment(file: Path) -> Contest:
    """Read an experiment of conf/experiment, with the values that Hydra would compose; the stage sets hardware and backend.

    The file names strategies and the budget, and lists operators (text) and seeds. It may name a space for all strategies;
    otherwise each strategy has its own. Missing values of a strategy have the default of its class.
    """
    content = _content(file)
    chosen = {key.removeprefix("override /"): value for line in content["defaults"] for key, value in line.items()}
    space = {"space": content["space"]} if "space" in content else {}
    strategies = {}
    for name in dict.fromkeys([*chosen["strategy"], *content["strategies"]]):
        given = {**content["strategies"].get(name, {}), **space}
        strategies[name] = (given.pop("of", name), given)
    compared = tuple(map(operators.parse, content["operators"]))
    return Contest(compared, strategies, int(content["budget"]["trials"]), tuple(content["seed"]))


def _content(file: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(file.read_text(encoding="utf-8")))
