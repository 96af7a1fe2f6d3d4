"""Table of the operations that rules cover. A rule is a function of a builder and the operation's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]
TABLE: dict[str, Rule] = {}
"""Name of an operation of ATen, such as `aten.relu.default` -> its rule."""
COMPLEX: dict[str, Rule] = {}
"""The same for operations that read or make complex numbers (`aten.transforms`)."""


def rule_of(target: str, is_complex: bool) -> Rule | None:
    """Return the rule of an operation, or None. A variant that copies a view has the rule of the view."""
    table = COMPLEX if is_complex else TABLE
    return table.get(target) or table.get(target.replace("_copy.", ".", 1))


def covers(*names: str) -> Callable[[Rule], Rule]:
    """Decorate a rule to register it for operations of ATen, whose names are given without `aten.`."""

    def register(rule: Rule) -> Rule:
        TABLE.update({f"aten.{name}": rule for name in names})
        return rule

    return register
