"""The table of operations that front-ends have: name -> function of a builder and the operation's own arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]
TABLE: dict[str, Rule] = {}
"""Covered operations of ATen by name, such as `aten.relu.default`."""


def covers(*names: str) -> Callable[[Rule], Rule]:
    """Register a function for operations of ATen."""

    def register(rule: Rule) -> Rule:
        TABLE.update({f"aten.{name}": rule for name in names})
        return rule

    return register
