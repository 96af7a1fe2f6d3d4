"""What a stage is given: where to write, how long it has, what it works on; and the journal that outlives it."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
import time
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Context:
    """One attempt at one stage. It is plain data, so that it can be handed to the stage's process."""

    out: str
    """Folder of the results."""
    scratch: str
    """Folder of this run, gone after it: what was begun and not ended."""
    run: str
    """Name of this run; rows of an earlier run in the same folder carry another."""
    seconds: float
    """After so many seconds a stage starts nothing new; some seconds later it is killed."""
    hardware: str = "h200"
    seed: int = 0
    begun: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds until the stage should end."""
        return self.begun + self.seconds - time.monotonic()

    def path(self, name: str) -> Path:
        """A file of the results."""
        return Path(self.out) / name

    def journal(self, name: str, keep: bool = False) -> Journal:
        """Rows of a file of the results; `keep` counts rows of earlier runs as done."""
        return Journal(self.path(name), self.run, Path(self.scratch) / f"{name}.begun", keep)

    def to_json(self) -> dict[str, object]:
        """As `from_json` takes it; the clock starts anew there."""
        value = asdict(self)
        del value["begun"]
        return value

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Context:
        """Start the clock."""
        return Context(**value)


class Journal:
    """Rows of JSON by key in a file that is only appended to: what was put is there whatever happens next.

    An item that was begun in this run and never put took its process down: `crashed` names it, so that the next attempt
    leaves it out.
    """

    def __init__(self, path: Path, run: str, begun: Path, keep: bool = False) -> None:
        """Read what there is. Rows of other runs count as `done` only with `keep`."""
        self._path, self._run, self._begun = path, run, begun
        rows = read_rows(path)
        self.done = {str(row["key"]): row for row in rows if "key" in row and (keep or row.get("run") == run)}
        started = begun.read_text(encoding="utf-8").splitlines() if begun.exists() else []
        self.crashed = {json.loads(line) for line in started} - set(self.done)

    def pending(self, key: str) -> bool:
        """Whether an item is still to be done: neither put nor begun by an attempt that died."""
        return key not in self.done and key not in self.crashed

    def begin(self, key: str) -> None:
        """Say that an item is begun."""
        _append(self._begun, json.dumps(key))

    def put(self, key: str, row: Mapping[str, object]) -> None:
        """Add a row."""
        whole = {"key": key, "run": self._run, **row}
        _append(self._path, json.dumps(whole, default=str))
        self.done[key] = whole


def _append(path: Path, line: str) -> None:
    """One line at the end of a file, handed to the system before this returns; half a line before it is ended first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        if file.tell() and not _ends_whole(path):
            file.write(b"\n")
        file.write(line.encode() + b"\n")


def _ends_whole(path: Path) -> bool:
    """Whether the last line of a file is ended."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def read_rows(path: Path) -> list[dict]:
    """Rows of a file of JSON lines, gzipped if its name says so; none where there is no file.

    A line that does not read was cut off by the end of its process and is left out. ValueError for a file that is no whole
    gzip file, or no text.
    """
    rows = []
    content = path.read_bytes() if path.exists() else b""
    try:
        text = (gzip.decompress(content) if path.suffix == ".gz" and content else content).decode()
    except (EOFError, OSError, UnicodeDecodeError, zlib.error) as error:
        raise ValueError(f"{path} does not read: {error}") from error
    for line in text.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def write_whole(path: Path, text: str) -> None:
    """Write a file such that readers find the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)
