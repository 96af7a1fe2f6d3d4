"""Compiled functions as plain Python, over lists of Python's own numbers.

The text is the same, and so are the answers, to the last bit: Python's integers and floats are those that Numba computes with,
logarithms are those of the same library of C, and neither fuses nor reorders what is written. Numbers of arrays are copied out
and those that changed are copied back, so a call that fails has changed nothing. Where Numba goes another way: its integers wrap
around beyond 64 bits, which those of no task do that can be scheduled; a division by zero, here an error, is none; what is
written to float32 is rounded when the same call reads it again, which none does.

Lists, because Python makes an object of each number of an array that it reads. A step of an environment takes 0.2 to 0.4 ms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])


class Line(list[Any]):
    """The numbers of an array of one axis."""

    ndim = 1

    def __init__(self, array: np.ndarray) -> None:
        """Copy the numbers of an array [N], which stays known."""
        super().__init__(array.tolist())
        self._array, self._before = array, list(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """As of the array."""
        return (len(self),)

    def copy(self) -> Line:
        """The same numbers, of no array."""
        made = Line(self._array[:0])
        made += self
        return made

    def put_back(self) -> None:
        """Write to the array what has changed, and nothing else: other threads may be at work on what lies beside."""
        if self != self._before:
            for at, (now, before) in enumerate(zip(self, self._before, strict=True)):
                if now is not before:
                    self._array[at] = now


class Lines:
    """The numbers of an array of several axes, copied line by line as they are asked for."""

    def __init__(self, array: np.ndarray) -> None:
        """Nothing copied yet of an array [N, ..]."""
        self._array, self._copied = array, dict[int, Line | Lines]()
        self.shape, self.ndim = array.shape, array.ndim

    def __getitem__(self, at: Any) -> Any:
        """A line by its number, or a number by its place; IndexError where there is none."""
        if isinstance(at, tuple):
            return self[at[0]][at[1]]
        if at not in self._copied:
            self._copied[at] = _copied(self._array[at])
        return self._copied[at]

    def __setitem__(self, at: tuple[int, int], number: Any) -> None:
        """Set one number."""
        self[at[0]][at[1]] = number

    def put_back(self) -> None:
        """See `Line`."""
        for line in self._copied.values():
            line.put_back()


class _Numpy:
    """What compiled functions ask of NumPy."""

    inf, log, float64 = math.inf, math.log, float
    int8 = int32 = int64 = int

    @staticmethod
    def zeros(shape: Any, dtype: type = float) -> Line | Lines:
        """Room to work in."""
        return _copied(np.zeros(shape, dtype))

    empty = zeros


def text_of(function: F) -> F:
    """What a compiled function was compiled from, which calls compiled ones."""
    return getattr(function, "py_func", function)


def interpreted(function: F) -> F:
    """A compiled function as plain Python, with all that it calls: for whoever asks little, or cannot wait.

    Given arrays it does with them what the compiled one does.
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
    """The numbers of an array."""
    return Line(array) if array.ndim == 1 else Lines(array)


_made: dict[FunctionType, FunctionType] = {}
"""Plain functions by the text of the compiled ones."""


def over_lists(function: Any) -> FunctionType:
    """The text of a function over globals in which functions that are compiled are plain, too, and arrays lists of numbers."""
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
