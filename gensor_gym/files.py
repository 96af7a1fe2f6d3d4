"""Atomic writes: after a crash or on a full disk, a reader sees either the whole new file or the previous file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def whole(path: Path, write: Callable[[Path], object], mode: int | None = None) -> None:
    """Call `write` with the path of a temporary file, then move the file to `path` atomically. `mode`: the file's permissions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        temporary = (Path(folder) / path.name).with_suffix(".tmp")  # torch writes the stem into its files
        with named(path):
            write(temporary)
            if mode is not None:
                temporary.chmod(mode)
            os.replace(temporary, path)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Add the file's name to system errors without one, such as the error of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_whole(path: str | os.PathLike[str], data: bytes, mode: int | None = None) -> None:
    """Write a file atomically; create a missing folder. `mode`: the file's permissions."""
    whole(Path(path), lambda temporary: temporary.write_bytes(data), mode)
