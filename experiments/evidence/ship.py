"""Long journals as they ship: `python -m experiments.evidence.ship FILE.jsonl ..` packs each as FILE.jsonl.gz in its place.

The text stays as it is, byte for byte, and packing it again gives the same file. `agents.runs.journal` reads it by its
former name. (`experiments.evidence.pack` is for raw files of a device: it leaves out texts that schedules can reproduce.)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from agents.cli.parser import Parser
from agents.cli.refusal import exit_code
from experiments.evidence.pack import folded

MOST_PLAIN = 16_000
"""Largest size in bytes of a journal that ships as plain text, which people can read."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status: 2 for a file that is missing or does not end in .jsonl."""
    parser = Parser(prog="python -m experiments.evidence.ship", description=__doc__)
    parser.add_argument("file", nargs="+", type=Path, help="journal, FILE.jsonl, which goes")
    args = parser.parse_args(arguments)
    return exit_code(lambda: print("\n".join(f"{ship(file)}" for file in args.file)))


def ship(file: Path) -> Path:
    """Replace a journal by its packed file and return the file's path. ValueError if there is no journal of that name."""
    if file.suffix != ".jsonl" or not file.is_file():
        raise ValueError(f"{file}: expected a file that is there and ends in .jsonl")
    packed = file.with_name(f"{file.name}.gz")
    packed.write_bytes(folded(file.read_bytes()))
    file.unlink()
    return packed


if __name__ == "__main__":
    sys.exit(main())
