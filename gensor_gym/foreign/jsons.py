"""Readers of JSON that others may have written: keys must be distinct, numbers finite, and nesting limited.

`foreign.files` limits the size of all kinds of files.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

from gensor_gym.foreign.files import read_lines, read_text

Made = TypeVar("Made")
MOST_NESTING = 64
"""Limit on nested brackets. Files of these packages nest a dozen."""
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{]++|[\]}]++', re.DOTALL)


def parse_json(text: str, finite: bool = True) -> Any:
    """Return the value that JSON text describes. `finite=False` also accepts NaN and Infinity, which Python writes.

    json.JSONDecodeError, a ValueError, for invalid JSON; ValueError for duplicate keys, numbers that are not finite, and brackets
    nested deeper than `MOST_NESTING`.
    """
    if text.count("[") + text.count("{") > MOST_NESTING:
        check_nesting(text)
    return (_STRICT if finite else _LOOSE).decode(text)


def parse_object(text: str, finite: bool = True) -> dict[str, Any]:
    """Return the object that JSON text describes, like `parse_json`. ValueError also if the value is not an object."""
    value = parse_json(text, finite)
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {_KINDS.get(type(value), 'number')}; expected an object, {{..}}")
    return value


def read_json(path: str | os.PathLike[str], finite: bool = True) -> dict[str, Any]:
    """Return the object in a JSON file. ValueError names the file and the fault. OSError if the file is missing."""
    text = read_text(path)
    try:
        return parse_object(text, finite)
    except ValueError as error:
        raise ValueError(f"{path} does not read: {error}") from error


def read_objects(path: str | os.PathLike[str], finite: bool = True) -> list[dict[str, Any]]:
    """Return the objects in a file of JSON lines. ValueError names file and line. OSError if the file is missing."""
    found = []
    for number, line in read_lines(path):
        try:
            found.append(parse_object(line, finite))
        except ValueError as error:
            raise ValueError(f"{path}, line {number} does not read: {error}") from error
    return found


def read_fields(path: str | os.PathLike[str], make: Callable[..., Made], of: str | None = None) -> Made:
    """Call `make` with the fields of the object in a JSON file, or of the object's member `of`, and return the result.

    ValueError if the member is missing, or if fields are missing or not accepted by `make`.
    """
    value = read_json(path, finite=False)
    inner = value if of is None else value.get(of)
    if not isinstance(inner, dict):
        raise ValueError(f"{path} does not read: {of!r} is {inner!r}; expected an object"[:400])
    try:
        return make(**inner)
    except TypeError as error:
        raise ValueError(f"{path} does not read: {error}") from error


_KINDS = {list: "list", str: "text", bool: "truth value", type(None): "null"}


def check_nesting(text: str) -> None:
    """Raise ValueError if brackets outside strings are nested deeper than `MOST_NESTING`."""
    depth = 0
    for found in _BRACKETS.finditer(text):
        first = text[found.start()]
        if first == '"':
            continue
        width = found.end() - found.start()
        depth += width if first in "[{" else -width
        if depth > MOST_NESTING:
            raise ValueError(f"brackets are nested deeper than {MOST_NESTING} (character {found.start()}); expected fewer")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object from its pairs. ValueError for duplicate keys, because a dict would keep only the last."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [key for key, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} stands twice in one object; it takes distinct keys")
    return found


def _refuse(name: str) -> float:
    raise ValueError(f"the number {name}; expected finite ones")


def _finite(text: str) -> float:
    """Convert text to a float. ValueError if the number is too large for a float."""
    value = float(text)
    return value if math.isfinite(value) else _refuse(text[:20])


_STRICT = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_refuse, parse_float=_finite)
_LOOSE = json.JSONDecoder(object_pairs_hook=_distinct)
