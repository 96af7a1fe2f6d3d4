"""Input of a stage: folders, time limit, machine and seed, and the journals of its rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agents.runs.journal import Journal, Row, read_rows


@dataclass(frozen=True)
class Context:
    """One attempt at one stage, as plain data for the stage's process."""

    out: str
    """Folder of the results."""
    scratch: str
    """Temporary folder of this run, for unfinished work."""
    run: str
    """Name of this run; rows of an earlier run in the same folder have another name."""
    seconds: float
    """Seconds after which a stage starts nothing new; some seconds later it is killed."""
    hardware: str = "h200"
    seed: int = 0
    begun: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds until the stage should end."""
        return self.begun + self.seconds - time.monotonic()

    def path(self, name: str) -> Path:
        """Path of a file of the results."""
        return Path(self.out) / name

    def journal(self, name: str) -> StageJournal:
        """Journal of a file of the results."""
        return StageJournal(self.path(name), self.run, Path(self.scratch) / f"{name}.begun")

    def rows(self, name: str) -> list[Row]:
        """Rows that this run wrote to a file of the results; empty if there is no file."""
        return [row for row in read_rows(self.path(name)) if row.get("run") == self.run]

    def to_json(self) -> dict[str, object]:
        """Fields as JSON values, without the clock: `Context(**value)` starts a new one."""
        value = asdict(self)
        del value["begun"]
        return value


class StageJournal:
    """Rows of a stage by key, and the items that were begun.

    An item that was begun in this run but never put has crashed its process: `crashed` contains it, so that the next attempt
    leaves it out.
    """

    def __init__(self, path: Path, run: str, begun: Path) -> None:
        """Read the file. Rows of other runs do not count as `done`."""
        self._run, self._journal, self._begun = run, Journal(path, ()), Journal(begun)
        self.done = {str(row["key"]): row for row in self._journal if "key" in row and row.get("run") == run}
        self.crashed = set(self._begun.rows) - set(self.done)

    def pending(self, key: str) -> bool:
        """Whether an item is still to be done: it was neither put nor begun by an attempt that died."""
        return key not in self.done and key not in self.crashed

    def begin(self, key: str) -> None:
        """Record that an item is begun."""
        self._begun.add({"key": key})

    def once(self, key: str, make: Callable[..., Mapping[str, object]], *of: Any) -> None:
        """Add the row `make(*of)` of an item, if the item is still to be done."""
        if self.pending(key):
            self.begin(key)
            self.put(key, make(*of))

    def put(self, key: str, row: Mapping[str, object]) -> None:
        """Add the row of an item."""
        whole = {"key": key, "run": self._run, **row}
        self._journal.add(whole)
        self.done[key] = whole

    def close(self) -> None:
        """Close the journals, so that other processes can write."""
        self._journal.close()
        self._begun.close()
