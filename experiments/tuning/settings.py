"""What `tune` and `tune_budgets` share: settings drawn at random, and the operators on which values may be chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from omegaconf import DictConfig, OmegaConf

from agents.cli.checks import check_whole
from agents.runs.settings import short_hash
from gensor_gym import operators
from gensor_gym.operators.types import Operator

Values = dict[str, Any]
Item = TypeVar("Item")


def distinct(config: DictConfig, rng: np.random.Generator, fits: Callable[[Values], bool] = lambda _: True) -> list[Values]:
    """Draw distinct random settings for the first round, as combinations of the configured choices for which `fits` holds.

    Raise ValueError if there are fewer combinations than settings.
    """
    choices: Any = OmegaConf.to_container(config.choices)
    count = config.rungs[0].settings
    if (there := math.prod(len(set(options)) for options in choices.values())) < count:
        raise ValueError(f"rungs: {count} settings asked for, expected at most the {there} that choices make")
    found: dict[str, Values] = {}
    while len(found) < count:
        values = {name: options[int(rng.integers(len(options)))] for name, options in choices.items()}
        if fits(values):
            found[short_hash(values)] = values
    return list(found.values())


def check_rungs(config: DictConfig, *names: str) -> None:
    """Check that `rungs` (rounds of halving) is a non-empty list whose entries have the whole numbers `names`.

    Raise ValueError if not.
    """
    given: Any = OmegaConf.to_container(config)["rungs"]  # type: ignore[index, call-overload]
    if not isinstance(given, list) or not given or not all(isinstance(rung, dict) for rung in given):
        raise ValueError(f"rungs {given!r}: expected a list such as [{{{', '.join(f'{name}: 8' for name in names)}}}]")
    for rung in given:
        check_whole({name: rung.get(name) for name in names}, 1, *names, of="rungs: ")


def operators_of(part: str) -> tuple[Operator, ...]:
    """Return the operators of a part of the split; raise ValueError for the test part."""
    if part not in ("train", "validation"):
        raise ValueError(f"part {part!r}: values are chosen on train and validation only")
    return tuple(operators.resolve(f"split/v1/{part}"))


def spread_over(items: Sequence[Item], count: int) -> list[Item]:
    """Return `count` items at even distances in a list; since operators are ordered by table, all classes are covered."""
    return [items[i] for i in np.unique(np.linspace(0, len(items) - 1, min(count, len(items))).astype(int))]
