"""Command lines of `key=value` words, for machines without Hydra."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

Settings = TypeVar("Settings")


def read_words(settings: type[Settings], words: Sequence[str]) -> Settings:
    """A dataclass with defaults, changed by the words' values; ValueError names the fault and the accepted keys."""
    kinds = {field.name: type(field.default) for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    values = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key not in kinds:
            raise ValueError(f"argument {word!r}: expected key=value with a key of {', '.join(kinds)}")
        values[key] = _value(key, text, kinds[key])
    return settings(**values)


def _value(key: str, text: str, kind: type) -> object:
    """The value of `text` in the type `kind`; ValueError if it is invalid."""
    if kind is tuple:
        return tuple(filter(None, text.strip("[]").replace(" ", "").split(",")))
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{key}={text}: expected true or false")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{key}={text}: expected a number") from None
