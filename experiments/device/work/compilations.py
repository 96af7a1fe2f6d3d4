"""First compilations of our own code by Numba: none should happen while a device waits."""

from __future__ import annotations

from numba.core import event

from experiments.device.work.progress import say

COMPILING = "numba:compile"
"""Numba's event for a function that no cache had."""


class Compilations(event.Listener):
    """Counts functions compiled in this process, in words on the screen where they are to be seen."""

    def __init__(self, loud: bool = True) -> None:
        """`loud` says each one as it ends."""
        self.functions: list[str] = []
        self._loud = loud

    def on_start(self, event: event.Event) -> None:
        """Nothing: the duration is recorded at the end."""

    def on_end(self, event: event.Event) -> None:
        """Count one more."""
        function = event.data["dispatcher"].py_func
        self.functions.append(f"{function.__module__}.{function.__name__}")
        if self._loud:
            say(f"compiled on the clock: {self.functions[-1]}")


def watch(loud: bool = True) -> Compilations:
    """Count from now on."""
    found = Compilations(loud)
    event.register(COMPILING, found)
    return found
