"""No garbage collection while Numba compiles our functions: it makes millions of objects that live to the end of that.

To look through them again and again was an eighth of what a cold start takes. Without it a process is 90 MB larger meanwhile.
"""

from __future__ import annotations

import gc
from typing import Any

from numba.core import event

from gensor_gym.graph.compiling.notice import COMPILING, is_ours


class Unswept(event.Listener):  # type: ignore[misc]
    """Hears of every function that Numba compiles; it holds its lock meanwhile, so these are of one thread."""

    def __init__(self) -> None:
        """Nothing is being compiled."""
        self._depth, self._was_on = 0, False

    def on_start(self, event: event.Event) -> None:
        """A function, inside of which Numba compiles those that it calls. The outermost one stops the collection."""
        if self._depth > 0 or is_ours(event):
            if self._depth == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._depth += 1

    def on_end(self, event: event.Event) -> None:
        """The function is done, or failed; after the outermost one it is as it was."""
        if self._depth > 0:
            self._depth -= 1
            if self._depth == 0 and self._was_on:
                gc.enable()


def stop_sweeping() -> Any:
    """From now on in this process."""
    found = Unswept()
    event.register(COMPILING, found)
    return found
