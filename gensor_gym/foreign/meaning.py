"""What a file means: faults that show only where its values are used name the file as well."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_FAULTS = (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)
"""What a missing field, a value of another type, or one out of range ends in where it is used."""


@contextmanager
def meant(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Inside, values of the file are used that should be `what`: ValueError where they are not of that shape."""
    try:
        yield
    except _FAULTS as error:
        raise ValueError(f"{path} is no {what}: {_told(error)}") from error


def _told(error: Exception) -> str:
    """The fault in words."""
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
