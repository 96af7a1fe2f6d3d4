"""Arguments of the environments, checked once, and their JSON form for `env.spec`."""

from __future__ import annotations

import copy
import math
import operator
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import SupportsIndex

import numpy as np
from gymnasium.envs.registration import EnvSpec

from gensor_gym import hardware as machines
from gensor_gym.dataflow import Dataflow, text_of
from gensor_gym.env.episodes.scalars import GOES_ON, MODEL_REWARD
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator
from gensor_gym.registry import near

DEFAULT_OPERATOR = "gemm(m=512, n=512, k=512)"
OBSERVATIONS = ("flat", "dict", "successors", "graph")
TIMINGS = ("pooled", "fresh")
REWARDS = ("final", "best_so_far")
"""Accepted values of `reward`: the final program alone is rewarded, or each program that is the fastest evaluated so far."""


@dataclass(frozen=True)
class Settings:
    """Arguments of an environment that define its decision process and observations, without operator, machine and space."""

    backend: str
    observation: str
    groups: tuple[str, ...] | None
    discount: float
    step_cost: float
    shaping: bool
    timing: str
    reward: str = "final"

    def __post_init__(self) -> None:
        """Raise ValueError, with the accepted values, for a bad setting."""
        if self.observation not in OBSERVATIONS:
            raise ValueError(f"no observation {self.observation!r}; it is one of {OBSERVATIONS}")
        if self.timing not in TIMINGS:
            raise ValueError(f"no timing {self.timing!r}; it is one of {TIMINGS}")
        if self.reward not in REWARDS:
            raise ValueError(f"no reward {self.reward!r}; it is one of {REWARDS}")
        if self.shaping not in (True, False):
            raise ValueError(f"shaping {self.shaping!r}: expected True or False")
        check_process(self.discount, self.step_cost)

    def vector(self) -> np.ndarray:
        """Return the settings as an array for compiled code.

        Its entries are [discount, step_cost, shaping, whether the backend is the model, whether the episode continues after
        `stop`].
        """
        tier = MODEL_REWARD if self.backend == "analytic" else 0.0
        return np.array([self.discount, self.step_cost, float(self.shaping), tier, GOES_ON if self.goes_on else 0.0])

    @property
    def goes_on(self) -> bool:
        """Whether an episode continues after `stop`, which then only evaluates the current program."""
        return self.reward == "best_so_far"


def check_moves(moves: str) -> None:
    """Raise ValueError unless `moves` is "primitives", the only accepted value."""
    if moves != "primitives":
        raise ValueError(
            f"no moves {moves!r}: expected 'primitives'; gensor_gym/Write-v0 with choices='columns' sets whole columns"
        )


def groups_of(given: Collection[str] | None) -> tuple[str, ...] | None:
    """Return the given names of observation groups as a tuple; None stands for all groups. ValueError for anything but names."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Collection) or not all(isinstance(name, str) for name in given):
        raise ValueError(f"observation_groups {given!r}: expected a list of names, or None for all of them")
    return tuple(given)


def check_process(discount: float, step_cost: float) -> None:
    """Raise ValueError unless discount is in (0, 1], and step_cost is finite and not negative."""
    if not isinstance(discount, Real) or not 0.0 < discount <= 1.0:
        raise ValueError(f"discount {discount!r} is not in (0, 1]")
    if not isinstance(step_cost, Real) or not 0.0 <= step_cost < math.inf:
        raise ValueError(f"step_cost {step_cost!r} is negative or no finite number; it takes 0 or more")


def whole(action: SupportsIndex) -> int:
    """Return the action as an int. ValueError if it is not an integer: actions are not rounded."""
    try:
        return operator.index(action)
    except TypeError:
        raise ValueError(f"action {action!r}: expected a whole number, as the action space has them") from None


def json_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    """Convert the arguments of an environment to JSON values, so that `env.spec.to_json()` can be read back.

    Operators, machines and paths become text. A Hardware that differs from the known machine of its name stays an object, because
    the name would stand for the known machine.
    """

    def plain(value: object) -> object:
        if isinstance(value, Operator):
            return str(value)
        if isinstance(value, Dataflow):
            return value.label or text_of(value)
        if isinstance(value, Hardware):
            known = (*machines.names(), *machines.recorded_names(), *machines.measured_names())
            return value.name if value.name in known and machines.get(value.name) == value else value
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        return value

    return {key: plain(value) for key, value in arguments.items()}


class TextSpec:
    """Mixin that keeps an environment's `spec` with its arguments as plain text.

    `gymnasium.make` and `make_vec` set `spec`.
    """

    @property
    def spec(self) -> EnvSpec | None:
        """The specification with plain-text arguments."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = copy.copy(spec)
        if self._spec is not None:
            self._spec.kwargs = json_arguments(self._spec.kwargs)

    _spec: EnvSpec | None = None


def kept_slices(names: tuple[str, ...] | None, slices: Mapping[str, slice]) -> dict[str, slice]:
    """Return the slice of features that each named group takes, or each group if `names` is None, in the order of `slices`.

    ValueError for an unknown group.
    """
    chosen = tuple(slices) if names is None else names
    if unknown := [name for name in chosen if name not in slices]:
        raise ValueError(f"no observation group {unknown[0]!r}; groups are {tuple(slices)}{near(unknown, slices)}")
    if not chosen:
        raise ValueError(f"no observation group at all; groups are {tuple(slices)}")
    return {name: found for name, found in slices.items() if name in chosen}
