"""Adds the name of a file to errors about values from it, even if they are raised only when the values are used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_FAULTS = (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)
"""Exceptions that are raised if a field is missing, of another type, or out of range."""


@contextmanager
def meant(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Return a context for code that uses values read from a file. `what` names the kind of file, such as "policy".

    Errors of missing or unsuitable values become a ValueError that names the file.
    """
    try:
        yield
    except _FAULTS as error:
        raise ValueError(f"{path} is no {what}: {_told(error)}") from error


def _told(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
