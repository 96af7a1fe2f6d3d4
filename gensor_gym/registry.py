"""Registries of operators, machines, backends, strategies and tables. Names are unique; errors name the owning module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, TypeVar

Made = TypeVar("Made", bound=Callable)
_OWNERS: dict[tuple[str, str], str] = {}
"""(kind, name) of an entry -> the module that registered it. Entries that this project defines are missing."""


def register(kind: str, table: dict[str, Any], name: str, value: object, owner: str) -> None:
    """Put an entry of the module `owner` into `table`. A module may replace its own entry.

    ValueError for a name that another module has taken. `kind`: the word for an entry in messages, such as "operator".
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{kind} {name!r} of {owner}: expected a name of letters, digits and underscores")
    if name in table and (taken := _OWNERS.get((kind, name), "gensor_gym")) != owner:
        raise ValueError(f"{kind} {name!r} of {owner}: {taken} has one of that name; choose another")
    table[name] = value
    _OWNERS[kind, name] = owner


def registered(kind: str) -> list[str]:
    """Return the names of a kind's entries that were added by `register`, such as entries of plugins."""
    return [name for of, name in _OWNERS if of == kind]


def near(name: object, names: Iterable[str]) -> str:
    """Return text such as `; did you mean gemm?` for an error message about an unknown name; empty if no known name is similar.

    `name` is the unknown name or several of them, `names` are the known names.
    """
    known: dict[str, str] = {}
    for one in names:
        known.setdefault(one.lower(), one)
    unknown = [name] if isinstance(name, str) else sorted(map(str, name)) if isinstance(name, Iterable) else []
    found = dict.fromkeys(known[match] for one in unknown for match in get_close_matches(one.lower(), known))
    return f"; did you mean {' or '.join(found)}?" if found else ""


def check_known(what: str, value: object, known: Iterable[str]) -> None:
    """Raise ValueError, with similar spellings, unless a value is in `known`. `what` is the kind of value, for the message."""
    if value not in (names := list(known)):
        raise ValueError(f"{what} {value!r}: expected one of {', '.join(names)}{near(value, names)}")


def registers(kind: str, table: dict[str, Any], name: str) -> Callable[[Made], Made]:
    """Return a decorator that registers a class or function in `table` under `name`; its module becomes the entry's owner."""

    def add(made: Made) -> Made:
        register(kind, table, name, made, made.__module__)
        return made

    return add
