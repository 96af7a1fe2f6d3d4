"""A copy of the tree in which mutations are planted one after another, and tests are run for each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agents.runs.pool import ONE_THREAD
from experiments.mutations.faults import Mutation

MODES = ("quick", "named", "whole")
PASSED, FAILED, STOPPED = 0, 1, 2
"""Exit statuses of pytest: all tests passed, some failed, or the run stopped (by -x, or by a module that does not import)."""
LONGEST = 3600.0
"""Seconds after which a run of tests counts as hanging, which counts as a caught mutation."""
HANGS = "no test: the run hangs"
STILL_APPLIES = "test_every_mutation_still_applies_once"
"""Name of a test that is left out: it fails for every planted fault, because it looks for the original text."""
_FIRST = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """Result of planting one mutation: whether a test caught it, and which."""

    mutation: str
    kind: str
    module: str
    """Path of the file that was changed."""
    caught: bool
    test: str
    """The first test that failed; empty if none did."""
    mode: str
    """Which tests were run last: those that the mutation names (`named`), or all (`whole`)."""
    seconds: float
    commit: str


class Unsure(Exception):
    """Raised if the failing test also fails without the mutation, so that its failure says nothing about the mutation."""


class Copy:
    """Copy of the files that git tracks or would track, with its own Numba cache; deleted at the end unless `place` is given."""

    def __init__(self, root: Path, jobs: int, place: Path | None = None) -> None:
        """Copy the tree at `root`, below `place` if given, whose Numba cache is then used again.

        `jobs` is the number of processes that run tests.
        """
        self._scratch = None if place else tempfile.TemporaryDirectory(prefix="mutations-")
        self._jobs = jobs
        self.root = (place.resolve() if place else Path(self._scratch.name)) / "tree"  # type: ignore[union-attr]
        if self.root.exists():
            shutil.rmtree(self.root)
        listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in filter(None, listed.split("\0")):
            if (root / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.root / name)
        self.commit = _git(root, "rev-parse", "--short", "HEAD").strip()

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, *_: object) -> None:
        if self._scratch:
            self._scratch.cleanup()

    def tried(self, mutation: Mutation, mode: str) -> Outcome:
        """Plant a mutation, run tests until one fails, restore the file, and return the outcome.

        Raise RuntimeError if pytest itself fails, and Unsure if the failing test also fails without the mutation.
        """
        path = mutation.place(self.root)
        file = self.root / path
        before, times = file.read_bytes(), file.stat()
        begin, test, ran = time.perf_counter(), "", "named"
        file.write_bytes(before.replace(mutation.old.encode(), mutation.new.encode()))
        try:
            if mode != "whole":
                test = self._first_failure(mutation.files(self.root))
            if mode == "whole" or (mode == "quick" and not test):
                test, ran = self._first_failure([]), "whole"
        finally:
            file.write_bytes(before)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # so that Numba's cache of the original is valid again
        seconds = round(time.perf_counter() - begin, 1)
        if test and test != HANGS and (without := self._first_failure([test])):
            raise Unsure(f"mutation {mutation.name!r}: {without} fails without it too, and says nothing")
        return Outcome(mutation.name, mutation.kind, str(path), bool(test), test, ran, seconds, self.commit)

    def _first_failure(self, tests: Iterable[str]) -> str:
        """Run the given test files, or all tests if none are given; return the first test that fails, empty if all pass."""
        options = ["-q", "-x", "-rfE", "--tb=no", "-p", "no:cacheprovider", "-n", str(self._jobs), "--dist", "loadfile"]
        options += ["-o", f"timeout={LONGEST / 3:.0f}"]  # limit of a single test, which may wait for Numba
        options += ["--deselect", f"tests/experiments/test_mutations.py::{STILL_APPLIES}"]  # it fails for every changed text
        environment = {
            **os.environ, **dict.fromkeys(ONE_THREAD, "1"), "PYTHONPATH": str(self.root),
            "NUMBA_CACHE_DIR": str(self.root.parent / "numba"), "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        command = [sys.executable, "-m", "pytest", *options, *tests]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment, check=False, cwd=self.root, timeout=LONGEST
            )
        except subprocess.TimeoutExpired:
            return HANGS
        if done.returncode == PASSED:
            return ""
        found = _FIRST.search(done.stdout)
        if done.returncode not in (FAILED, STOPPED) or found is None:
            raise RuntimeError(f"pytest, exit status {done.returncode}: {(done.stdout + done.stderr).strip()[-2000:]}")
        return found[1]


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True).stdout
