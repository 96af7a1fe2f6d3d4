"""Compiled functions that run interpreted while another process compiles them.

Numba calls `_compile_for_args` only for argument types without a compiled function. Here it returns the interpreted function
while the server compiles, and Numba's compiled function afterwards. Calls with a compiled function take no extra time.
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
"""Whether all functions run interpreted until they are compiled. None leaves the choice to each function (`Hurried.early`)."""


@contextmanager
def at_once() -> Iterator[None]:
    """Return a context in which calls run interpreted until their function is compiled, so no call waits for compilation.

    For calls that take less time interpreted than compilation would.
    """
    before = _hurry.set(_hurry.get() is not False)
    try:
        yield
    finally:
        _hurry.reset(before)


@contextmanager
def waiting() -> Iterator[None]:
    """Return a context in which every call waits until its function is compiled, even inside `at_once`. For timing."""
    before = _hurry.set(False)
    try:
        yield
    finally:
        _hurry.reset(before)


class Hurried(Kept):
    """A compiled function whose calls run interpreted until it is compiled: inside `at_once`, or if `early` is set."""

    early = False
    """Whether calls run interpreted until the function is compiled, unless `at_once` or `waiting` decides."""

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        """Return the compiled function, or meanwhile the interpreted one. Numba calls this for new argument types."""
        hurry = _hurry.get()
        if (self.early if hurry is None else hurry) and not any(isinstance(each, OmittedArg) for each in args):
            types = tuple(self.typeof_pyval(each) for each in args)
            if apart.compiles(self, types):
                return self._answer
        return super()._compile_for_args(*args, **kws)

    def _answer(self, *args: Any) -> Any:
        """Return the result of the interpreted function. If it raises, as for a division by zero, call the compiled function."""
        try:
            return self._plain(*args)
        except Exception:  # no array has changed yet, and the compiled function decides
            return super()._compile_for_args(*args)(*args)

    @cached_property
    def _plain(self) -> Any:
        return interpreted(self)
