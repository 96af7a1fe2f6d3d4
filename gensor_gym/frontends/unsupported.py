"""The error for modules that cannot be converted. It names the reason before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Unsupported(ValueError):
    """Raised for a module with an unsupported operation or kind of tensor. The text names it and its position."""


@contextmanager
def refusing(what: str = "") -> Iterator[None]:
    """Turn a ValueError inside the `with` block into Unsupported, with `what` before its text.

    Use it for code that runs after the caller's arguments were checked.
    """
    try:
        yield
    except Unsupported:
        raise
    except ValueError as error:
        raise Unsupported(f"{what}{error}") from error
