"""What the stages do: conf/bench/gpu.yaml and a file of conf/experiment, without Hydra, which a GPU machine need not have."""

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
FILE = CONF / "bench" / "gpu.yaml"
POLICIES = CONF / "experiment" / "gpu_policies.yaml"


@dataclass(frozen=True)
class Contest:
    """Strategies under equal trials."""

    operators: tuple[Operator, ...]
    strategies: Mapping[str, tuple[str, Mapping[str, object]]]
    """By name: the registered strategy and its hyperparameters. The others are compared with the first."""
    trials: int
    """Of each search."""
    seeds: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Table:
    """Operators of every stage that times, and the comparison."""

    operators: dict[str, Operator]
    """By a short name, in order of importance."""
    tables: tuple[Operator, ...]
    """Recorded whole, in space `compact`."""
    compare: Contest
    tensor: tuple[Operator, ...] = ()
    """Recorded in part, programs on tensor cores."""
    tensor_programs: int = 0
    """Of each."""
    test: tuple[Operator, ...] = ()
    """Of the test part, recorded in part, in a file that no fit reads."""
    test_programs: int = 0


@cache
def read_table(file: Path = FILE) -> Table:
    """The file's content. ValueError for an operator that does not parse or stands in a list that is not for its part."""
    content = _content(file)
    compare = content["compare"]
    return Table(
        {name: operators.parse(text) for name, text in content["operators"].items()},
        _of_part(file, content, "tables", ("train", "validation")),
        Contest(
            _operators(compare["operators"]),
            {name: (name, {}) for name in compare["strategies"]},
            int(compare["trials"]),
            tuple(compare["seeds"]),
        ),
        _of_part(file, content, "tensor", ("train", "validation")),
        int(content["programs"]["tensor"]),
        _of_part(file, content, "test", ("test",)),
        int(content["programs"]["test"]),
    )


def _of_part(file: Path, content: Mapping[str, Any], name: str, parts: tuple[str, ...]) -> tuple[Operator, ...]:
    """The operators of a list; ValueError for one of another part of the split: what is fitted must not see the test part."""
    found = _operators(content[name])
    for op in found:
        if (part := operators.part_of(op)) not in parts:
            raise ValueError(f"{file.name}: {op} in `{name}` is of the {part} part; expected one of {', '.join(parts)}")
    return found


@cache
def read_experiment(file: Path = POLICIES) -> Contest:
    """What a file of conf/experiment compares, as Hydra composes it; hardware and backend are the stage's.

    The file names strategies and budget and lists operators as text and seeds; it may name a space for all strategies, which
    otherwise have their own. What it does not say of a strategy has the default of the strategy's class.
    """
    content = _content(file)
    chosen = {key.removeprefix("override /"): value for line in content["defaults"] for key, value in line.items()}
    space = {"space": content["space"]} if "space" in content else {}
    strategies = {}
    for name in dict.fromkeys([*chosen["strategy"], *content["strategies"]]):
        given = {**content["strategies"].get(name, {}), **space}
        strategies[name] = (given.pop("of", name), given)
    trials = _content(CONF / "budget" / f"{chosen['budget']}.yaml")["trials"]
    return Contest(_operators(content["operators"]), strategies, int(trials), tuple(content["seed"]))


def _content(file: Path) -> dict[str, Any]:
    """A file of YAML."""
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def _operators(texts: list[str]) -> tuple[Operator, ...]:
    """Operators from their texts."""
    return tuple(map(operators.parse, texts))
