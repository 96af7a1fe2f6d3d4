"""Readers of bytes, text and lines of a file that others may have written, gzipped or not, with a limit on size."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

MOST_BYTES = 64 << 20
"""Limit on the bytes of a file and of its gunzipped content. 20 times the largest shipped file; the parsed values take less than
500 MB."""
_GZIP, _BLOCK = b"\x1f\x8b", 1 << 20


def read_bytes(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Return the raw content of a file.

    ValueError for a device and for a file of more than `most` bytes; OSError for a folder, a missing file and an unreadable file.
    """
    with open(path, "rb") as file:
        if stat.S_ISCHR(kind := os.fstat(file.fileno()).st_mode) or stat.S_ISBLK(kind):
            raise ValueError(f"{path} is a device; expected a file")
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{path} is larger than {most:,} bytes, which is the most that is read")
    return data


def unfolded(data: bytes, most: int = MOST_BYTES) -> bytes:
    """Decompress gzip data; return other data unchanged. ValueError for broken data, or more than `most` bytes."""
    if not data.startswith(_GZIP):
        return data
    size = 0
    try:
        for block in _blocks(data):  # measured first, so that content that is too large is never in memory
            size += len(block)
            if size > most:
                raise ValueError(f"gzip data that unfold to more than {most:,} bytes, which is the most that is read")
        return b"".join(_blocks(data))
    except zlib.error as error:
        raise ValueError(f"no whole gzip data: {error}") from error


def _blocks(data: bytes) -> Iterator[bytes]:
    """Yield the decompressed blocks of gzip data. ValueError if the data are truncated, zlib.error if corrupt."""
    while data:
        part = zlib.decompressobj(wbits=31)
        while not part.eof:
            block = part.decompress(data, _BLOCK)
            data = part.unconsumed_tail
            if not data and not block and not part.eof:
                raise ValueError("gzip data that are cut off")
            yield block
        data = part.unused_data.lstrip(b"\0")  # another member, or padding


def read_text(path: str | os.PathLike[str], most: int = MOST_BYTES) -> str:
    """Return the UTF-8 text of a file, gzipped or not. Errors of `read_bytes`, and ValueError for anything but UTF-8 text."""
    try:
        return unfolded(read_bytes(path, most), most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}") from error
    except ValueError as error:
        raise ValueError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


def read_lines(path: str | os.PathLike[str], most: int = MOST_BYTES) -> Iterator[tuple[int, str]]:
    """Return (number from 1, text) of every line of a file that is not blank. Errors of `read_text`."""
    text = read_text(Path(path), most)
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())
