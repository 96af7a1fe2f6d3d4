"""Names of operators, machines, backends, strategies and tables: who owns each, and that no name is taken twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

Value = TypeVar("Value")
Made = TypeVar("Made", bound=Callable)


class Registry(dict[str, Value]):
    """Things of one kind by name, in the order in which they came."""

    def __init__(self, kind: str, built_in: Mapping[str, Value] | None = None) -> None:
        """`kind` is the word for one of them, in messages; what is `built_in` belongs to this project."""
        super().__init__(built_in or {})
        self._kind = kind
        self._owners: dict[str, str] = {}

    def register(self, name: str, value: Value, owner: str) -> None:
        """Add what `owner`, a module, defines; a module that is run again replaces its own.

        ValueError for a name that another module has.
        """
        if name in self and (taken := self._owners.get(name, "gensor_gym")) != owner:
            raise ValueError(f"{self._kind} {name!r} of {owner}: {taken} has one of that name; choose another")
        self[name] = value
        self._owners[name] = owner

    def named(self, name: str) -> Callable[[Made], Made]:
        """A decorator that registers a class or a function under a name."""

        def add(made: Made) -> Made:
            self.register(name, made, made.__module__)  # type: ignore[arg-type]
            return made

        return add
