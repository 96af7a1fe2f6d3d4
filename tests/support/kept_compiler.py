"""A C++ compiler that keeps what it made: `python kept_compiler.py COMPILER OPTIONS -o FILE`, with sources as absolute paths.

Most of what the emulated kernels cost is compiling them with sanitizers. What is kept is found by all that it is made from:
the compiler's version, the options, and every file beside the sources and in the folders of -I. A text that differs in one
character is compiled. Errors are the compiler's and are not kept.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

KEPT = Path(__file__).resolve().parents[2] / ".pytest_cache" / "compiled"
KEPT_SECONDS = 7 * 24 * 3600.0


def digest(command: list[str]) -> str:
    """Of all that decides what the compiler makes."""
    found = hashlib.sha256(subprocess.run([command[0], "--version"], capture_output=True, check=True).stdout)
    sources = [Path(part) for part in command[1 : command.index("-o")] if part.startswith("/")]
    for part in command[1 : command.index("-o")]:
        found.update((Path(part).name if part.startswith(("/", "-I")) else part).encode() + b"\0")
    folders = [source.parent for source in sources] + [Path(part[2:]) for part in command if part.startswith("-I")]
    for file in sorted(file for folder in folders for file in folder.iterdir() if file.is_file()):
        found.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()


def compiled(command: list[str], made: Path) -> int:
    """Write what the command makes, kept or new; the exit status."""
    kept = KEPT / digest(command)
    if kept.exists():
        made.write_bytes(gzip.decompress(kept.read_bytes()))
        made.chmod(0o755)
        os.utime(kept)
        return 0
    status = subprocess.run(command, check=False).returncode
    if status == 0:
        KEPT.mkdir(parents=True, exist_ok=True)
        own = kept.with_suffix(f".{os.getpid()}")
        own.write_bytes(gzip.compress(made.read_bytes(), 1))
        os.replace(own, kept)
    return status


def forget() -> None:
    """Delete what was not used for a week."""
    for kept in KEPT.glob("*"):
        if kept.stat().st_mtime < time.time() - KEPT_SECONDS:
            kept.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(compiled(sys.argv[1:], Path(sys.argv[sys.argv.index("-o") + 1])))
