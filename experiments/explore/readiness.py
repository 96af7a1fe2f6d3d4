"""Compilation in the background of the page: on a fresh machine Numba needs a minute for rules and model at their first call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Lock, Thread

from experiments.explore.address import Address
from experiments.explore.players import chances_of
from experiments.explore.session import graph_of, position_of
from experiments.explore.views import view_of
from gensor_gym import hardware

PATIENCE = 0.3
"""Seconds that an answer waits; after that the page shows the progress."""

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
"""Steps before the first page, in order."""


@dataclass
class Progress:
    """How far that is for one kind of task."""

    begun: float
    stage: int = 0
    error: ValueError | None = None
    done: Event = field(default_factory=Event)

    @property
    def words(self) -> str:
        """Words for the present step."""
        return STAGES[min(self.stage, len(STAGES) - 1)][0]

    @property
    def share(self) -> float:
        """Share of the finished stages, 0 to 1."""
        return self.stage / len(STAGES)

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.begun


class Readiness:
    """Which machines and spaces are ready, and getting others ready, one after the other."""

    def __init__(self, stages: tuple[tuple[str, Callable[[Address], object]], ...] = STAGES) -> None:
        """Nothing is ready. `stages` are gone through once for every machine and space."""
        self._stages = stages
        self._one_at_a_time = Lock()
        self._known: dict[tuple[str, str], Progress] = {}
        self._lock = Lock()

    def waiting_for(self, address: Address, patience: float = PATIENCE) -> Progress | None:
        """None if a task of that machine and space is ready; ValueError if the first requested one is impossible.

        A failure is forgotten: the next request may succeed.
        """
        key = (address.machine, address.space)
        with self._lock:
            progress = self._known.get(key)
            if progress is None:
                progress = self._known[key] = Progress(time.monotonic())
                task = Address(address.operator, *key)
                Thread(target=self._prepare, args=(task, progress), daemon=True).start()  # nobody waits for it at the end
        if not progress.done.wait(patience):
            return progress
        if progress.error is not None:
            with self._lock:
                self._known.pop(key, None)
            raise progress.error
        return None

    def _prepare(self, address: Address, progress: Progress) -> None:
        """Go through the stages."""
        try:
            with self._one_at_a_time:
                for progress.stage, (_, work) in enumerate(self._stages):  # noqa: B007
                    work(address)
        except ValueError as error:
            progress.error = error
        finally:
            progress.done.set()
