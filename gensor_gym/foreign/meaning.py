"""The content of a file: faults that show only when its values are used name the file as well."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_FAULTS = (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)
"""Exceptions when a field is missing, of another type, or out of range."""


@contextmanager
def meant(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Context that uses values of a file as `what`: ValueError if they do not have that form."""
    try:
        yield
    except _FAULTS as error:
        raise ValueError(f"{path} is no {what}: {_told(error)}") from error


def _told(error: Exception) -> str:
    """The fault in words."""
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
