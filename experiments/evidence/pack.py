"""Raw files of runs on a device, packed to be shipped: `python -m experiments.evidence.pack FILE.jsonl .. OUTPUT.jsonl.gz`.

Rows keep every field except texts that the schedule can reproduce: keys that contain it, and sources, which only wrong kernels
keep. The packed file depends only on the rows, so that packing again gives the same bytes.
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
from agents.runs.journal import read_rows
from gensor_gym.measure.measurement import Status


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status: 2 for a missing file."""
    parser = Parser(prog="python -m experiments.evidence.pack", description=__doc__)
    parser.add_argument("file", nargs="+", type=Path, help="JSON lines, gzipped or not, in the order they are to stand")
    parser.add_argument("output", type=Path, help="name that ends in .jsonl.gz")
    args = parser.parse_args(arguments)
    return exit_code(lambda: print(f"{write_rows(args.output, map(slim, rows_of(args.file)))} rows in {args.output}"))


def rows_of(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Rows of several files; ValueError for a missing file."""
    for file in files:
        if not file.is_file():
            raise ValueError(f"no file of rows at {file}")
    return [row for file in files for row in read_rows(file)]


def slim(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without fields that its schedule can reproduce."""
    said = {"source"} if row.get("status") != Status.WRONG_ANSWER.value else set()
    if row.get("schedule", "no schedule") in row.get("key", ""):
        said.add("key")
    return {name: value for name, value in row.items() if name not in said}


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write gzipped JSON lines whose bytes depend only on the rows; return the number of rows.

    ValueError unless `path` ends in .jsonl.gz.
    """
    if not path.name.endswith(".jsonl.gz"):
        raise ValueError(f"{path}: expected a name that ends in .jsonl.gz")
    lines = [json.dumps(row) + "\n" for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(folded("".join(lines).encode()))
    return len(lines)


def folded(data: bytes) -> bytes:
    """Gzip data so that the bytes depend only on the content."""
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, compresslevel=9, mtime=0) as file:
        file.write(data)
    return packed.getvalue()


if __name__ == "__main__":
    sys.exit(main())
