"""Values of keywords in a node's text: whole numbers, lists of whole numbers, numbers, and texts of operators."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from gensor_gym.dataflow.graph import MOST_AXES, MOST_ELEMENTS


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a literal is a number in the range of a float."""
    return isinstance(value, float) or (
        isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    )


def _is_whole(value: object) -> bool:
    """Whether a literal is a whole number that may be an extent or an index."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST_ELEMENTS


def _is_list(value: object) -> bool:
    """Whether a literal is a list of such whole numbers, at most one for each axis of a value."""
    return isinstance(value, list | tuple) and len(value) <= MOST_AXES and all(map(_is_whole, value))


Kind = tuple[Callable[[object], bool], str]
_WHOLE: Kind = _is_whole, f"a whole number up to {MOST_ELEMENTS}"
_LIST: Kind = _is_list, f"a list of at most {MOST_AXES} whole numbers"
KINDS: dict[str, Kind] = {
    **dict.fromkeys(("axis", "start", "stop", "before", "after"), _WHOLE), **dict.fromkeys(("axes", "to", "order"), _LIST),
    "value": (is_number, "a number"), "operator": (lambda value: isinstance(value, str), "the text of an operator"),
}  # fmt: skip
"""Keyword -> (check of its value, the expected value in words)."""


def check_options(options: Mapping[str, Any]) -> None:
    """Check that keywords accept their values; ValueError if not. Unknown keywords are left to the node."""
    for word, value in options.items():
        fits, expected = KINDS.get(word, (lambda _: True, ""))
        if not fits(value):
            raise ValueError(f"{word}={reprlib.repr(value)}: expected {expected}")
