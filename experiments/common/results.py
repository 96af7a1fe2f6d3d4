"""Files of results, written as a whole: a reader, or a crash, sees all of one or what was there before."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` write a file in a folder of its own, from where it takes its place at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        temporary = (Path(folder) / path.name).with_suffix(".tmp")  # torch writes the stem into what it saves
        with named(path):
            write(temporary)
            os.replace(temporary, path)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Errors of the system that name no file, as those of a full disk, name this one."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file as a whole."""
    whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_summary(folder: Path, summary: Mapping[str, object], page: str) -> None:
    """Write what a study found: summary.json, and its page summary.md."""
    write_text(folder / "summary.json", json.dumps(summary, indent=1, default=str))
    write_text(folder / "summary.md", page)
