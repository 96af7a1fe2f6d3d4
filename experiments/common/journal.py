"""A journal: rows of JSON, one a line, in an append-only file. Added rows survive any later event.

A row is one write, which the operating system holds when `Journal.add` returns. So a killed process leaves whole lines and at
most one torn at the end, which the next process to open the journal cuts off. One process writes to a file at a time. (Power
failures are left to the file system: waiting for the disk at every row would take longer than many trials.)

Long journals ship packed, NAME.jsonl.gz (`experiments.evidence.ship`). They are read by the name NAME.jsonl, and unpacked where
rows are added.
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

from experiments.common.folders import make_folder
from gensor_gym.files import named, whole
from gensor_gym.foreign import meant, parse_json, read_bytes, read_text, unfolded

Row = dict[str, Any]
MOST_BYTES = 256 << 20
"""Limit on the uncompressed bytes of a journal: some hundred thousand trials."""


class Journal:
    """The rows of a file by name; only this process adds rows, from any thread."""

    def __init__(self, path: Path, fields: Sequence[str] = ("key",), finite: bool = False) -> None:
        """Read the file. A row's name is its values of `fields`; of several rows with one name the last counts.

        Without fields, names are row numbers from 0. `finite` refuses numbers that JSON does not have. ValueError if another
        process writes to the file, and for a row without a field.
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
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let others write."""
        self.close()

    def __iter__(self) -> Iterator[Row]:
        """The rows in the order in which their names came."""
        return iter(self.rows.values())

    def add(self, *rows: Mapping[str, Any]) -> None:
        """Append rows in one write; ValueError for one that lacks a field."""
        taken = [dict(row) for row in rows]
        with self._writing:
            for row in taken:
                self._name(row)
            with named(self.path):
                _write(self._file, _text(taken, self._finite))
            for row in taken:
                self._take(row)

    def drop(self, names: Collection[Hashable]) -> None:
        """Forget rows, in the file as well, which is replaced as a whole."""
        if not names:
            return
        held: list[FileIO] = []

        def write(temporary: Path) -> None:
            temporary.write_bytes(_text(self.rows.values(), self._finite))
            held.append(hold(temporary))  # so that nobody comes between

        with self._writing:
            left = {name: row for name, row in self.rows.items() if name not in names}
            self.rows = left if self._fields else dict(enumerate(left.values()))
            whole(self.path, write)
            self._file.close()
            (self._file,) = held

    def close(self) -> None:
        """Let others write; otherwise that is when nothing holds this object any more."""
        self._file.close()

    def _name(self, row: Row) -> Hashable:
        """Name of a row."""
        if lacking := [field for field in self._fields if field not in row]:
            raise ValueError(f"{self.path}: a row without {', '.join(lacking)}: {row}"[:300])
        return itemgetter(*self._fields)(row) if self._fields else len(self.rows)

    def _take(self, row: Row) -> None:
        """Into memory."""
        self.rows[self._name(row)] = row


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Append a row to a journal that no process has open, as `Journal.add` does; ValueError if another process writes to it."""
    with hold(path) as file, named(path):
        _unpack(file, path)
        _mend(file)
        _write(file, _text([row]))


def hold(path: Path) -> FileIO:
    """A file, opened to append to, that no other process holds as long as it is open here; ValueError if one does."""
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
        file.close()  # another file took its place in between


def locked(folder: Path) -> FileIO:
    """An open file that says that this process works in the folder; ValueError if another one does."""
    return hold(make_folder(folder) / ".lock")


def lying(path: Path) -> Path:
    """Path of a journal: its packed file if the path is missing or empty, else the path itself."""
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.exists() and not (path.exists() and path.stat().st_size) else path


def read_rows(path: Path) -> list[Row]:
    """Rows of a file of JSON lines, plain or packed (`lying`); none if there is no file.

    A line that does not read was cut off by the end of its process and is left out. ValueError for a file that is no whole
    gzip file, or no text.
    """
    path = lying(path)
    try:
        text = read_text(path, MOST_BYTES) if path.exists() else ""
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} does not read: {error}") from error
    return [row for row in map(_row, text.split("\n")) if row is not None]


def _text(rows: Iterable[Mapping[str, Any]], finite: bool = False) -> bytes:
    """Lines of rows."""
    return "".join(json.dumps(row, allow_nan=not finite, default=str) + "\n" for row in rows).encode()


def _write(file: FileIO, text: bytes) -> None:
    """Append all of the text, or nothing if the disk is full."""
    end, left = file.seek(0, os.SEEK_END), memoryview(text)
    try:
        while left:
            left = left[file.write(left) :]
    except BaseException:
        file.truncate(end)
        raise


def _unpack(file: FileIO, path: Path) -> None:
    """Fill an empty journal with what lies packed beside it."""
    if (packed := lying(path)) != path:
        _write(file, unfolded(read_bytes(packed, MOST_BYTES), MOST_BYTES))


def _mend(file: FileIO) -> None:
    """Cut a torn line off; one that lacks nothing but its end is given it."""
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
    """The row of a line; None if it is cut off."""
    try:
        row = parse_json(line if isinstance(line, str) else line.decode(), finite=False)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
