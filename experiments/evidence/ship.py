"""Long journals as they ship: `python -m experiments.evidence.ship FILE.jsonl ..` packs each as FILE.jsonl.gz in its place.

The text stays as it is, byte for byte, and packing it again gives the same file. `agents.runs.journal` reads it by its former
name. Raw rows of a device are packed by `write_rows`, without texts that their schedules can reproduce (`slim`).
"""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.cli.parser import Parser
from agents.cli.refusal import exit_code
from gensor_gym.measure.measurement import Status

MOST_PLAIN = 16_000
"""Largest size in bytes of a journal that ships as plain text, so that people can read it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack the journals of the command line; return the exit status, 2 for a file that is missing or does not end in .jsonl."""
    parser = Parser(prog="python -m experiments.evidence.ship", description=__doc__)
    parser.add_argument("file", nargs="+", type=Path, help="journal, FILE.jsonl, which goes")
    args = parser.parse_args(arguments)
    return exit_code(lambda: print("\n".join(f"{ship(file)}" for file in args.file)))


def ship(file: Path) -> Path:
    """Replace a journal by its packed file and return the packed file's path; raise ValueError if there is no such journal."""
    if file.suffix != ".jsonl" or not file.is_file():
        raise ValueError(f"{file}: expected a file that is there and ends in .jsonl")
    packed = file.with_name(f"{file.name}.gz")
    packed.write_bytes(folded(file.read_bytes()))
    file.unlink()
    return packed


def slim(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without its source, unless the kernel is wrong, and without its key if the key contains the schedule."""
    said = {"source"} if row.get("status") != Status.WRONG_ANSWER.value else set()
    if row.get("schedule", "no schedule") in row.get("key", ""):
        said.add("key")
    return {name: value for name, value in row.items() if name not in said}


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as gzipped JSON lines to `path`, which ends in .jsonl.gz; the file's bytes depend only on the rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(folded("".join(json.dumps(row) + "\n" for row in rows).encode()))


def folded(data: bytes) -> bytes:
    """Gzip data so that the bytes depend on the data alone; those of `gzip.compress` differ between versions of Python."""
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file:
        file.write(data)
    return packed.getvalue()


if __name__ == "__main__":
    sys.exit(main())
