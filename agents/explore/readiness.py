"""Compile the rules and the model for the page in the background. On a fresh machine their first call takes a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Lock, Thread

from agents.explore.address import Address
from agents.explore.players import chances_of
from agents.explore.session import graph_of, position_of
from agents.explore.views import view_of
from gensor_gym import hardware

PATIENCE = 0.3
"""Seconds that a request waits before the page shows the progress instead."""

def _first_mask(address: Address) -> object:
    graph = graph_of(*address.task)
    return graph.action_mask(graph.initial())


STAGES: tuple[tuple[str, Callable[[Address], object]], ...] = (
    ("reading what the machine is", lambda address: hardware.get(address.machine)),
    ("compiling the rules: which actions are legal", _first_mask),
    ("compiling the analytic model", lambda address: position_of(address).seconds),
    ("compiling what actions lead to", lambda address: position_of(address).moves),
    ("compiling the traverser's benefits", lambda address: chances_of(position_of(address))),
    ("looking for a certified optimum", lambda address: view_of(position_of(address))),
)
"""(description, function) of each step of compilation before the first page can be shown, in order."""


@dataclass
class Progress:
    """Progress of the compilation for one machine and space."""

    begun: float
    stage: int = 0
    error: ValueError | None = None
    done: Event = field(default_factory=Event)

    @property
    def words(self) -> str:
        """Description of the current stage of the compilation."""
        return STAGES[min(self.stage, len(STAGES) - 1)][0]

    @property
    def share(self) -> float:
        """Finished share of the compilation's stages, 0 to 1."""
        return self.stage / len(STAGES)

    @property
    def seconds(self) -> float:
        """Seconds since the compilation began."""
        return time.monotonic() - self.begun


class Readiness:
    """Compiles rules and model for machines and spaces on background threads, one at a time, and records which are ready."""

    def __init__(self, stages: tuple[tuple[str, Callable[[Address], object]], ...] = STAGES) -> None:
        self._stages = stages
        self._one_at_a_time = Lock()
        self._known: dict[tuple[str, str], Progress] = {}
        self._lock = Lock()

    def waiting_for(self, address: Address, patience: float = PATIENCE) -> Progress | None:
        """Return None if an address's machine and space are ready, otherwise the progress of their compilation.

        The first call starts the compilation, and every call waits up to `patience` seconds for it. ValueError if the compilation
        failed. A failure is forgotten: the next request tries again.
        """
        key = (address.machine, address.space)
        with self._lock:
            progress = self._known.get(key)
            if progress is None:
                progress = self._known[key] = Progress(time.monotonic())
                task = Address(address.operator, *key)
                Thread(target=self._prepare, args=(task, progress), daemon=True).start()  # a daemon does not delay the exit
        if not progress.done.wait(patience):
            return progress
        if progress.error is not None:
            with self._lock:
                self._known.pop(key, None)
            raise progress.error
        return None

    def _prepare(self, address: Address, progress: Progress) -> None:
        try:
            with self._one_at_a_time:
                for progress.stage, (_, work) in enumerate(self._stages):  # noqa: B007
                    work(address)
        except ValueError as error:
            progress.error = error
        finally:
            progress.done.set()
