"""A compiler that keeps what it made: `python kept_compiler.py FOLDER COMPILER OPTIONS -o FILE`, with sources as absolute paths.

Most of what emulated kernels and sanitizers cost is compiling. What is kept is found by all that it is made from: the
compiler's version, the processor, the options, and every file beside the sources and in the folders of -I but those that no
compiler reads. A text that differs in one character is compiled. Errors are the compiler's and are not kept.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

NAME = "compiled_by_tests"
"""The folder of the user's cache in which it is kept: a second clone has what the first has made."""
KEPT_SECONDS = 7 * 24 * 3600.0
NOT_READ = {"", ".json", ".md", ".so", ".o", ".a", ".gch"}
"""Ends of the names of such files; programs have none."""


def wrapped(folder: Path) -> tuple[str, ...]:
    """What stands before a compiler's command line so that what it makes is kept in a folder."""
    return sys.executable, "-I", "-S", __file__, str(folder)


def headers(compiler: tuple[str, ...], options: tuple[str, ...], folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The option that has gcc find headers, the first by its name and others within it, as compiled here with the options.

    With other options, or macros other than these, gcc takes their text. None for other compilers.
    """
    said = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True).stdout
    if "Free Software Foundation" not in said:
        return ()
    text = folder / "all.h"
    text.write_text("".join(f'#include "{name}"\n' for name in names), encoding="utf-8")
    subprocess.run([*compiler, *options, "-x", "c++-header", str(text), "-o", str(folder / f"{names[0]}.gch")], check=True)
    return (f"-I{folder}",)


def digest(command: list[str]) -> str:
    """Of all that decides what the compiler makes."""
    found = hashlib.sha256(subprocess.run([command[0], "--version"], capture_output=True, check=True).stdout)
    found.update(_processor())
    sources = [Path(part) for part in command[1 : command.index("-o")] if part.startswith("/")]
    for part in command[1 : command.index("-o")]:
        found.update((Path(part).name if part.startswith(("/", "-I")) else part).encode() + b"\0")
    folders = [source.parent for source in sources] + [Path(part[2:]) for part in command if part.startswith("-I")]
    for file in sorted(file for folder in folders for file in folder.iterdir() if file.is_file() and file.suffix not in NOT_READ):
        found.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()


def _processor() -> bytes:
    """What -march=native depends on."""
    lines = Path("/proc/cpuinfo").read_bytes().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")


def compiled(command: list[str], made: Path, folder: Path) -> int:
    """Write what the command makes, kept in the folder or new; the exit status."""
    kept = folder / digest(command)
    if kept.exists():
        made.write_bytes(gzip.decompress(kept.read_bytes()))
        made.chmod(0o755)
        os.utime(kept)
        return 0
    status = subprocess.run(command, check=False).returncode
    if status == 0:
        own = kept.with_suffix(f".{os.getpid()}")
        own.write_bytes(gzip.compress(made.read_bytes(), 1))
        os.replace(own, kept)
    return status


def forget(folder: Path) -> None:
    """Delete what was not used for a week."""
    for kept in folder.glob("*"):
        if kept.stat().st_mtime < time.time() - KEPT_SECONDS:
            kept.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(compiled(sys.argv[2:], Path(sys.argv[sys.argv.index("-o") + 1]), Path(sys.argv[1])))
