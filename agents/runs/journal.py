"""A journal: an append-only file of JSON rows, one per line. Added rows survive a crash of the process.

A row is one write, which the operating system has received when `Journal.add` returns. A killed process therefore leaves whole
lines and at most one torn line at the end, which the next process to open the journal cuts off. Only one process writes to a file
at a time. (Power failures are left to the file system: waiting for the disk at every row would take longer than many trials.)

Long journals ship compressed, as NAME.jsonl.gz (`experiments.evidence.ship`). They are read by the name NAME.jsonl, and
decompressed when rows are added.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from io import FileIO
from operator import itemgetter
from pathlib import Path
from typing import Any

from agents.runs.files import make_folder
from gensor_gym.files import named, whole
from gensor_gym.foreign import meant, parse_json, read_bytes, read_text, unfolded

Row = dict[str, Any]
MOST_BYTES = 256 << 20
"""Maximum number of uncompressed bytes of a journal, enough for hundreds of thousands of trials."""


class Journal:
    """The rows of a journal file, indexed by name. Only this process adds rows, from any thread."""

    def __init__(self, path: Path, fields: Sequence[str] = ("key",), finite: bool = False) -> None:
        """Open a journal file and read its rows.

        A row's name is the tuple of its values of `fields`. Of rows with equal names, the last counts. Without fields, names are
        row numbers from 0. `finite` refuses numbers that JSON lacks, such as infinity. ValueError if another process writes to
        the file, and for a row that lacks a field.
        """
        self.path, self._fields, self._finite = path, tuple(fields), finite
        self._writing = threading.Lock()
        self._file = hold(path)
        _unpack(self._file, path)
        _mend(self._file)
        self.rows: dict[Hashable, Row] = {}
        with meant(path, "journal"):
            for row in read_rows(path):
                self._take(row)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Row]:
        """Iterate over the rows in the order in which their names were first added."""
        return iter(self.rows.values())

    def add(self, *rows: Mapping[str, Any]) -> None:
        """Append rows in one write. ValueError for a row that lacks a field."""
        taken = [dict(row) for row in rows]
        with self._writing:
            for row in taken:
                self._name(row)
            with named(self.path):
                _write(self._file, _text(taken, self._finite))
            for row in taken:
                self._take(row)

    def drop(self, names: Collection[Hashable]) -> None:
        """Remove rows by name, also from the file, which is written again as a whole."""
        if not names:
            return
        held: list[FileIO] = []

        def write(temporary: Path) -> None:
            temporary.write_bytes(_text(self.rows.values(), self._finite))
            held.append(hold(temporary))  # before another process can lock it

        with self._writing:
            left = {name: row for name, row in self.rows.items() if name not in names}
            self.rows = left if self._fields else dict(enumerate(left.values()))
            whole(self.path, write)
            self._file.close()
            (self._file,) = held

    def close(self) -> None:
        """Close the file, so that other processes can write; otherwise this happens when the object is deleted."""
        self._file.close()

    def _name(self, row: Row) -> Hashable:
        if lacking := [field for field in self._fields if field not in row]:
            raise ValueError(f"{self.path}: a row without {', '.join(lacking)}: {row}"[:300])
        return itemgetter(*self._fields)(row) if self._fields else len(self.rows)

    def _take(self, row: Row) -> None:
        self.rows[self._name(row)] = row


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Append a row, like `Journal.add`, to a journal that no process has open. ValueError if another process writes to it."""
    with hold(path) as file, named(path):
        _unpack(file, path)
        _mend(file)
        _write(file, _text([row]))


def hold(path: Path) -> FileIO:
    """Open a file for appending and lock it while it is open. ValueError if another process has locked it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = path.open("a+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise ValueError(
                f"another process is writing to {path}; wait for it or name another folder with output=..."
            ) from None
        if path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
            return file
        file.close()  # another file has replaced this one


def locked(folder: Path) -> FileIO:
    """Lock a folder for this process and return the open lock file, which holds the lock until it is closed.

    ValueError if another process has locked it.
    """
    return hold(make_folder(folder) / ".lock")


def lying(path: Path) -> Path:
    """Return the path from which a journal is read: the compressed file's if `path` is missing or empty, otherwise `path`."""
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.exists() and not (path.exists() and path.stat().st_size) else path


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a file of JSON lines, plain or compressed (`lying`); empty if the file is missing.

    A line that cannot be parsed was cut off when its process ended; it is left out. ValueError for a broken gzip file, or a file
    that is not text.
    """
    path = lying(path)
    try:
        text = read_text(path, MOST_BYTES) if path.exists() else ""
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} does not read: {error}") from error
    return [row for row in map(_row, text.split("\n")) if row is not None]


def _text(rows: Iterable[Mapping[str, Any]], finite: bool = False) -> bytes:
    """Encode rows as lines of JSON. With `finite`, ValueError for NaN and infinity."""
    return "".join(json.dumps(row, allow_nan=not finite, default=str) + "\n" for row in rows).encode()


def _write(file: FileIO, text: bytes) -> None:
    """Append the whole text to a file, or nothing if the disk is full."""
    end, left = file.seek(0, os.SEEK_END), memoryview(text)
    try:
        while left:
            left = left[file.write(left) :]
    except BaseException:
        file.truncate(end)
        raise


def _unpack(file: FileIO, path: Path) -> None:
    if (packed := lying(path)) != path:
        _write(file, unfolded(read_bytes(packed, MOST_BYTES), MOST_BYTES))


def _mend(file: FileIO) -> None:
    """Repair the end of a file: cut off a torn last line, or give a whole last line its line end."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
    if file.read() in (b"", b"\n"):
        return
    file.seek(0)
    content = file.read()
    at = content.rfind(b"\n") + 1
    if _row(content[at:]) is None:
        file.truncate(at)
    else:
        _write(file, b"\n")


def _row(line: str | bytes) -> Row | None:
    try:
        row = parse_json(line if isinstance(line, str) else line.decode(), finite=False)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
