"""Compiled functions run as plain Python over lists of numbers. Results equal those of Numba's code to the last bit.

The source is the same. Python's integers and floats are those of Numba, logarithms come from the same C library, and neither
fuses nor reorders operations. Arrays are copied to lists, and changed numbers are copied back at the end, so a call that fails
has changed nothing. Lists are faster than arrays, because Python creates an object for each element that it reads from an array:
a step of an environment takes 0.2 to 0.4 ms.

Three differences from Numba do not matter here. Numba's integers wrap beyond 64 bits, which no schedulable task reaches. Division
by zero raises in Python and not in Numba. Numba rounds a number that is written to a float32 array and read in the same call; no
function does that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])


class Line(list[Any]):
    """Numbers of a one-dimensional array as a list, which interpreted code reads faster than the array."""

    ndim = 1

    def __init__(self, array: np.ndarray) -> None:
        """Copy the numbers of an array [N], and keep the array for `put_back`."""
        super().__init__(array.tolist())
        self._array, self._before = array, list(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the list as if it were an array: (length,)."""
        return (len(self),)

    def copy(self) -> Line:
        """Return a copy of the list that writes nothing back into the array."""
        made = Line(self._array[:0])
        made += self
        return made

    def put_back(self) -> None:
        """Write the changed numbers back into the array, and only these: other threads may write its other elements."""
        if self != self._before:
            for at, (now, before) in enumerate(zip(self, self._before, strict=True)):
                if now is not before:
                    self._array[at] = now


class Lines:
    """Stands for an array with several axes in interpreted code. Its slices become lists when they are first read."""

    def __init__(self, array: np.ndarray) -> None:
        """Keep an array [N, ..]. Nothing is copied yet."""
        self._array, self._copied = array, dict[int, Line | Lines]()
        self.shape, self.ndim = array.shape, array.ndim

    def __getitem__(self, at: Any) -> Any:
        """Return a slice along the first axis if `at` is an index, a number if it has all indices. IndexError if out of range."""
        if isinstance(at, tuple):
            return self[at[0]][at[1]]
        if at not in self._copied:
            self._copied[at] = _copied(self._array[at])
        return self._copied[at]

    def __setitem__(self, at: tuple[int, int], number: Any) -> None:
        self[at[0]][at[1]] = number

    def put_back(self) -> None:
        """Write the changed numbers of all copied slices back into the array."""
        for line in self._copied.values():
            line.put_back()


class _Numpy:
    inf, log, float64 = math.inf, math.log, float
    int8 = int32 = int64 = int

    @staticmethod
    def zeros(shape: Any, dtype: type = float) -> Line | Lines:
        return _copied(np.zeros(shape, dtype))

    empty = zeros


def text_of(function: F) -> F:
    """Return the Python function from which a compiled function was made; any other function unchanged."""
    return getattr(function, "py_func", function)


def interpreted(function: F) -> F:
    """Return a version of a compiled function that runs as plain Python, together with everything that it calls.

    It changes arrays as the compiled function does. For callers with few calls, or with no time to wait for compilation.
    """
    text = over_lists(function)

    def answered(*arguments: Any) -> Any:
        given = [_copied(each) if isinstance(each, np.ndarray) else each for each in arguments]
        found = text(*given)
        for each in given:
            if isinstance(each, Line | Lines):
                each.put_back()
        return found

    return answered  # type: ignore[return-value]


def _copied(array: np.ndarray) -> Line | Lines:
    return Line(array) if array.ndim == 1 else Lines(array)


_made: dict[FunctionType, FunctionType] = {}
"""Python function of a compiled function -> its copy over lists (`over_lists`)."""


def over_lists(function: Any) -> FunctionType:
    """Copy a function so that it runs as plain Python over lists of numbers.

    In the copy's globals, compiled functions are such copies, too, and arrays are lists.
    """
    text: Any = text_of(function)
    if text not in _made:
        scope = dict(text.__globals__)
        _made[text] = FunctionType(text.__code__, scope, text.__name__, text.__defaults__, text.__closure__)
        for name in text.__code__.co_names:
            value = scope.get(name)
            if hasattr(value, "py_func"):
                scope[name] = over_lists(value)
            elif isinstance(value, np.ndarray):
                scope[name] = _copied(value)
            elif value is np:
                scope[name] = _Numpy
    return _made[text]
