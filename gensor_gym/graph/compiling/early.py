"""Compiled functions that run interpreted while another process compiles them.

Numba calls `_compile_for_args` only for argument types without a compiled function. This module returns the interpreted function
there while the server works, and Numba's afterwards. Calls that find a compiled function are as fast as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any

from numba.core.dispatcher import OmittedArg

from gensor_gym.graph.compiling.apart import apart
from gensor_gym.graph.compiling.kept import Kept
from gensor_gym.graph.compiling.plain import interpreted

_hurry: ContextVar[bool | None] = ContextVar("hurry", default=None)
"""Whether all functions answer early or none does; None if each follows its declaration."""


@contextmanager
def at_once() -> Iterator[None]:
    """Context in which no function is waited for: for calls whose interpreted run is faster than compiling."""
    before = _hurry.set(_hurry.get() is not False)
    try:
        yield
    finally:
        _hurry.reset(before)


@contextmanager
def waiting() -> Iterator[None]:
    """Context in which every function is waited for, even inside `at_once`: for timing."""
    before = _hurry.set(False)
    try:
        yield
    finally:
        _hurry.reset(before)


class Hurried(Kept):
    """A function that answers early if its caller says so (`at_once`)."""

    early = False
    """Whether it does so anyway."""

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        """Called by Numba instead of compiling: return a compiled function, or an interpreted one."""
        hurry = _hurry.get()
        if (self.early if hurry is None else hurry) and not any(isinstance(each, OmittedArg) for each in args):
            types = tuple(self.typeof_pyval(each) for each in args)
            if apart.compiles(self, types):
                return self._answer
        return super()._compile_for_args(*args, **kws)

    def _answer(self, *args: Any) -> Any:
        """The interpreted function's answer, or the compiled one's if Python raises, as for a division by zero."""
        try:
            return self._plain(*args)
        except Exception:  # nothing is changed yet, and the compiled function says what it has to say of these arguments
            return super()._compile_for_args(*args)(*args)

    @cached_property
    def _plain(self) -> Any:
        """The same function as plain Python."""
        return interpreted(self)
