"""Errors for unsupported modules, by name, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Unsupported(ValueError):
    """A module has an operation, or a kind of tensor, that has no kernels here; the text names it and its place."""


@contextmanager
def refusing(what: str = "") -> Iterator[None]:
    """Every ValueError becomes Unsupported, with `what` in front of its text: arguments of the caller's were checked before."""
    try:
        yield
    except Unsupported:
        raise
    except ValueError as error:
        raise Unsupported(f"{what}{error}") from error
