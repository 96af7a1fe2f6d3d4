"""Check entries of a configuration: numbers, lists and truth values."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from gensor_gym.hardware.cpuinfo import THREADS


def check_whole(given: Mapping[str, Any], least: int, *names: str, of: str = "", null: Collection[str] = ()) -> None:
    """Check that the named entries are whole numbers of at least `least`; ValueError names the first that is not.

    The message begins with `of`. Entries in `null` may be null.
    """
    for name in names:
        if given[name] is None and name in null:
            continue
        if type(given[name]) is not int or given[name] < least:
            raise ValueError(f"{of}{name} is {given[name]!r}; expected a whole number, {least} or more")


def use_threads(given: Mapping[str, Any]) -> None:
    """Let kernels of this process and its child processes use `given["threads"]` threads; null leaves all cores.

    ValueError unless the entry is null or a whole number of at least 1.
    """
    check_whole(given, 1, "threads", null=("threads",))
    if given["threads"] is not None:
        os.environ[THREADS] = str(given["threads"])


def check_list(given: Mapping[str, Any], least: int, *names: str, of: str = "") -> None:
    """Check that the named entries are non-empty lists of whole numbers of at least `least`; ValueError names the first fault."""
    for name in names:
        values = given[name]
        if not isinstance(values, list) or not values or not all(type(value) is int and value >= least for value in values):
            raise ValueError(f"{of}{name} {values!r}: expected a list of whole numbers, {least} or more")


def check_shape(given: DictConfig, file: DictConfig | ListConfig) -> None:
    """Check that no entry is missing and no group of settings is replaced by a plain value; ValueError names the fault."""
    if missing := sorted(OmegaConf.missing_keys(given)):
        raise ValueError(f"no {' and no '.join(missing)}: name {'it' if len(missing) == 1 else 'them'}, as in {missing[0]}=VALUE")
    for name in given.strategies or () if "strategies" in given else ():
        if not isinstance(given.strategies[name], DictConfig | None):
            raise ValueError(f"strategies.{name} is {given.strategies[name]!r}; expected settings, strategies.{name}.FIELD=VALUE")
    plain: Any = OmegaConf.to_container(file)
    for name, settings in plain.items():
        if isinstance(settings, dict) and settings and name in given and not isinstance(given[name], DictConfig | None):
            raise ValueError(f"{name} is {given[name]!r}; expected settings, as in {name}.{next(iter(settings))}=VALUE")


def check_some(given: Mapping[str, Any], *names: str, of: str = "") -> None:
    """Check that the named entries are non-empty lists or mappings; ValueError names the first that is not."""
    for name in names:
        if not isinstance(given[name], Sequence | Mapping) or isinstance(given[name], str) or not given[name]:
            raise ValueError(f"{of}{name} is {given[name]!r}; expected a list or mapping of one entry or more, as in {name}=[..]")


def check_positive(given: Mapping[str, Any], *names: str, of: str = "") -> None:
    """Check that the named entries are positive numbers or non-empty lists of such; ValueError names the first that is not."""
    for name in names:
        several = isinstance(given[name], list | ListConfig)
        values = given[name] if several else [given[name]]
        if not values or not all(_is_number(value) and value > 0 for value in values):
            wanted = "a list of numbers, each more than 0" if several else "more than 0"
            raise ValueError(f"{of}{name} is {given[name]!r}; expected {wanted}")


def check_truths(given: Mapping[str, Any], *names: str) -> None:
    """Check that the named entries are true or false; ValueError names the first that is not."""
    for name in names:
        if not isinstance(given[name], bool):
            raise ValueError(f"{name} is {given[name]!r}; expected true or false")


def check_kinds(given: Mapping[str, Any], known: Mapping[str, Any], of: str = "") -> None:
    """Check that each entry is a finite number, or a list, where that of `known` is one; ValueError names the first that is not.

    The message begins with `of`. Entries that are null in either mapping are skipped.
    """
    for name, value in known.items():
        if value is None or given.get(name) is None:
            continue
        if isinstance(value, int | float) and not isinstance(value, bool) and not _is_number(given[name]):
            raise ValueError(f"{of}{name} is {given[name]!r}; expected a number, such as {value}")
        if isinstance(value, list) and not isinstance(given[name], list):
            raise ValueError(f"{of}{name} is {given[name]!r}; expected a list, such as {value}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
