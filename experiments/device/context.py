"""Input of a stage: its folders, time limit, machine and seed, and the journals to which it writes result rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agents.runs.journal import Journal, Row, read_rows


@dataclass(frozen=True)
class Context:
    """One attempt at one stage, as plain data that is passed to the stage's process.

    `out` is the folder of the results; `begun` is the clock's time when the process got the context.
    """

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
        """Seconds that remain until the stage should end."""
        return self.begun + self.seconds - time.monotonic()

    def path(self, name: str) -> Path:
        """Return the path of a file in the folder of the results."""
        return Path(self.out) / name

    def journal(self, name: str) -> StageJournal:
        """Open the journal of a file in the folder of the results."""
        return StageJournal(self.path(name), self.run, Path(self.scratch) / f"{name}.begun")

    def rows(self, name: str) -> list[Row]:
        """Return the rows that this run wrote to a file of the results; empty if there is no file."""
        return [row for row in read_rows(self.path(name)) if row.get("run") == self.run]

    def to_json(self) -> dict[str, object]:
        """Return the fields as JSON values, except the clock: `Context(**value)` starts a new one."""
        value = asdict(self)
        del value["begun"]
        return value


class StageJournal:
    """Journal of a stage's result rows by key, which also knows the items that were begun.

    An item that was begun in this run but has no row has crashed its process. It is in `crashed`, so that the next attempt leaves
    it out.
    """

    def __init__(self, path: Path, run: str, begun: Path) -> None:
        """Read the journal at `path` and the items begun; rows of other runs do not count as `done`."""
        self._run, self._journal, self._begun = run, Journal(path, ()), Journal(begun)
        self.done = {str(row["key"]): row for row in self._journal if "key" in row and row.get("run") == run}
        self.crashed = set(self._begun.rows) - set(self.done)

    def pending(self, key: str) -> bool:
        """Return whether an item is still to be done: it has no row, and no attempt died on it."""
        return key not in self.done and key not in self.crashed

    def begin(self, key: str) -> None:
        """Record that the work on an item begins."""
        self._begun.add({"key": key})

    def once(self, key: str, make: Callable[..., Mapping[str, object]], *of: Any) -> None:
        """If an item is still to be done, record its beginning, make its row by `make(*of)`, and add the row."""
        if self.pending(key):
            self.begin(key)
            self.put(key, make(*of))

    def put(self, key: str, row: Mapping[str, object]) -> None:
        """Add the result row of an item, marked with its key and this run."""
        whole = {"key": key, "run": self._run, **row}
        self._journal.add(whole)
        self.done[key] = whole

    def close(self) -> None:
        """Close the journals, so that other processes can write."""
        self._journal.close()
        self._begun.close()
