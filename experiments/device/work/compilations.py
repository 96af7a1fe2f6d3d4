"""Compilations of our own code by Numba: none should happen while a device waits."""

from __future__ import annotations

from numba.core import event

from experiments.device.work.progress import say

COMPILING = "numba:compile"
"""Numba's event for the compilation of a function that is in no cache."""


class Compilations(event.Listener):
    """Lists the functions compiled in this process, and prints each if `loud`."""

    def __init__(self, loud: bool = True) -> None:
        """Begin with no functions; `loud` prints each function when it is compiled."""
        self.functions: list[str] = []
        self._loud = loud

    def on_start(self, event: event.Event) -> None:
        """Do nothing; `on_end` records the function."""

    def on_end(self, event: event.Event) -> None:
        """Record the compiled function."""
        function = event.data["dispatcher"].py_func
        self.functions.append(f"{function.__module__}.{function.__name__}")
        if self._loud:
            say(f"compiled on the clock: {self.functions[-1]}")


def watch(loud: bool = True) -> Compilations:
    """Record compilations from now on and return the record."""
    found = Compilations(loud)
    event.register(COMPILING, found)
    return found
