"""Numbers of a configuration, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def check_whole(given: Mapping[str, Any], least: int, *names: str, of: str = "") -> None:
    """ValueError names the first of these entries that is no whole number of at least `least`; `of` stands before its name."""
    for name in names:
        if type(given[name]) is not int or given[name] < least:
            raise ValueError(f"{of}{name} is {given[name]!r}; expected a whole number, {least} or more")


def check_list(given: Mapping[str, Any], least: int, *names: str) -> None:
    """As `check_whole`, of entries that are lists with one number at least."""
    for name in names:
        values = given[name]
        if not isinstance(values, list) or not values or not all(type(value) is int and value >= least for value in values):
            raise ValueError(f"{name} {values!r}: expected a list of whole numbers, {least} or more")
