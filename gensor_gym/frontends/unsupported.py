"""Errors for unsupported modules, by name, before anything runs."""

from __future__ import annotations


class Unsupported(ValueError):
    """A module has an operation, or a kind of tensor, that has no kernels here; the text names it and its place."""
