"""Shared parts of suites: result lines as JSON, operators of a configuration, and the machine's load."""

from __future__ import annotations

import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from typing import Any, TypeVar

from agents import get_strategy
from agents.optimizer import run
from agents.runs.journal import Journal
from agents.runs.settings import code_digest
from experiments.comparison.retime import ticks
from gensor_gym import operators
from gensor_gym.cache.folders import VARIABLE
from gensor_gym.hardware.cpuinfo import is_narrow
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend
from gensor_gym.measure.devices.cpu import processor_name
from gensor_gym.measure.session import Budget, Session, Task
from gensor_gym.operators.types import Operator
from gensor_gym.registry import near

LOOP = 200_000
Item = TypeVar("Item")


class Lines:
    """Result lines of a suite, written to a journal and to standard output: in full to a pipe, as a short note to a terminal."""

    def __init__(self, path: Path, suite: str) -> None:
        """Open the journal at `path`, deleting the lines that it contains."""
        self.suite, self.path, self.journal = suite, path, Journal(path, ())
        self.journal.drop(set(self.journal.rows))

    @property
    def rows(self) -> list[dict[str, object]]:
        """All rows so far."""
        return list(self.journal)

    def __call__(self, **values: object) -> None:
        """Write one result line with these values."""
        row = {"suite": self.suite, **values}
        self.journal.add(row)
        told = f"{self.suite}: {row.get('kind', '')} {row.get('operator', '')}"
        print(told if sys.stdout.isatty() else json.dumps(row, default=str), flush=True)


def machine() -> dict[str, object]:
    """Describe the machine for a result line: processor, number of cores, load, date, digest of the code, and `avx2`."""
    return {
        "processor": processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "code": code_digest(),
        **avx2(),
    }


def avx2() -> dict[str, bool]:
    """Return {"avx2": True} if $GENSOR_GYM_AVX2 leaves the processor's AVX-512 unused, else nothing."""
    return {"avx2": True} if is_narrow() else {}


def calibration() -> float:
    """Return the iterations per second of an empty Python loop, which shows how fast the machine now runs one process."""
    begin = time.perf_counter()
    for _ in range(LOOP):
        pass
    return LOOP / (time.perf_counter() - begin)


class Steal:
    """Meter of the processor time that the hypervisor gives to other guests, from the object's creation on."""

    def __init__(self) -> None:
        self._before = ticks()

    def share(self) -> float:
        """Return stolen ticks divided by all ticks since the meter was made; 0 if the system does not report them."""
        _, stolen, total = (after - before for after, before in zip(ticks(), self._before, strict=True))
        return stolen / total if total > 0 else 0.0


def resolved(given: Any) -> list[Operator]:
    """Return the distinct operators that an entry of a configuration, text or a list, names; ValueError if it names none."""
    return list(dict.fromkeys(operators.resolve(given if isinstance(given, str) else list(given))))


def check_each(settings: Mapping[str, Any], name: str, known: Iterable[str], of: str) -> None:
    """Check that every entry of the list `settings[name]` is one of `known`; ValueError names the first that is not.

    `of` is the suite's name, for the message.
    """
    for entry in settings[name]:
        if entry not in (names := list(known)):
            raise ValueError(f"{of}.{name}: {entry!r}: expected some of {', '.join(names)}{near(entry, names)}")


def once(done: Journal, key: str, make: Callable[..., dict[str, Any]], *of: Any) -> dict[str, Any]:
    """Return the row of `key` in the journal `done`; if it is missing, make it by `make(*of)` and add it.

    A row with an `error` is returned but not added, so that the next run tries again.
    """
    if key not in done.rows:
        if "error" in (row := make(*of)):
            return row
        done.add({"key": key, **row})
    return {name: value for name, value in done.rows[key].items() if name != "key"}


def in_turn(ways: Mapping[str, Callable[[Item], object]], items: Sequence[Item]) -> dict[str, list[float]]:
    """Do each item in every way, each time in another order of the ways. Return the seconds of each way, in the items' order."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    orders = list(permutations(ways))
    for number, item in enumerate(items):
        for name in orders[number % len(orders)]:
            begin = time.perf_counter()
            ways[name](item)
            seconds[name].append(time.perf_counter() - begin)
    return seconds


@contextmanager
def empty_cache() -> Iterator[None]:
    """Use a new, empty cache folder for the project within the `with` block, also in worker processes."""
    before = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory(prefix="gensor-gym-") as folder:
        os.environ[VARIABLE] = folder
        try:
            yield
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before


# A search of the suites: a strategy by name, in its own space, with a number of trials.

def searched(
    op: Operator, hw: Hardware, backend: Backend, name: str, trials: int, seed: int, store: str | None = None
) -> Session:
    """Run the strategy `name` on an operator for a number of trials and return its session.

    Trials that the file `store` contains are answered from it.
    """
    strategy = get_strategy(name)
    session = Session(Task(op, hw, backend, strategy.space), Budget(trials=trials), store)
    run(strategy, session, seed)
    return session
