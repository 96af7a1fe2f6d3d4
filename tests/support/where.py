"""Where the tests' time goes: `make test ARGS=--where=FILE` writes a table of processor time by test file.

Processor time and not the clock, so that a busy machine does not alter the table: user and system seconds of the test
process, and of its children once they have ended (a pool that lives on is charged to the test that ends it). What a test
imports or compiles first in a process is charged to it.

Numba's seconds are those of the test process; its child processes compile too, which counts as theirs. C compilers are
timed by programs of their names, first on $PATH: apart from the rest where they build for a sanitizer.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from numba.core import event

PHASES = ("collection", "setup", "call", "teardown")
PARTS = ("own", "children", "Numba", "compilers", "sanitizers")
"""Columns of seconds: Numba's are a part of the own ones, those of compilers of the children's."""
SLOWEST = 60
"""Tests that are listed by name."""
COMPILERS = ("gcc", "g++", "cc", "c++", "clang", "clang++")
_TIMED = Path(__file__).with_name("timed_compiler.c")


def processor_seconds() -> tuple[float, float]:
    """Processor time so far, in seconds: of this process, of its children that have ended."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of this plugin."""
    parser.addoption("--where", metavar="FILE", help="write a table of processor time by test file")


def pytest_configure(config: pytest.Config) -> None:
    """Counts only when asked."""
    if config.getoption("--where") or getattr(config, "workerinput", {}).get("where"):
        config.pluginmanager.register(Ledger(), "where")


class Compilers:
    """Programs in front of the C compilers of $PATH, and the seconds that they have written down so far."""

    def __init__(self) -> None:
        """Children of this process find the programs from now on."""
        self.folder = Path(tempfile.mkdtemp(prefix="where-"))
        for name in COMPILERS:
            if compiler := shutil.which(name):  # an ELF file, whose version find_compiler remembers
                named = [f'-DCOMPILER="{compiler}"', f'-DFOLDER="{self.folder}"', str(_TIMED), "-o", str(self.folder / name)]
                subprocess.run([shutil.which("gcc") or compiler, *named], check=True)
        self._path = os.environ["PATH"]
        os.environ["PATH"] = f"{self.folder}{os.pathsep}{self._path}"

    def seconds(self) -> list[float]:
        """Of compilers, of these for sanitizers."""
        plain, sanitized = (self._sum(self.folder / name) for name in ("compilers", "sanitizers"))
        return [plain, sanitized]

    def _sum(self, log: Path) -> float:
        return sum(map(float, log.read_text(encoding="utf-8").split())) if log.exists() else 0.0

    def close(self) -> None:
        """Delete the programs."""
        os.environ["PATH"] = self._path
        shutil.rmtree(self.folder, ignore_errors=True)


class Numba(event.Listener):
    """Processor seconds for which this process has compiled; functions that are compiled inside others count once."""

    def __init__(self) -> None:
        """None."""
        self.seconds, self._begun = 0.0, threading.local()
        event.register("numba:compile", self)

    def on_start(self, event: event.Event) -> None:
        """A function begins."""
        stack = self._begun.__dict__.setdefault("stack", [])
        stack.append(time.thread_time())

    def on_end(self, event: event.Event) -> None:
        """A function ends."""
        begin = self._begun.stack.pop()
        if not self._begun.stack:
            self.seconds += time.thread_time() - begin


class Ledger:
    """Processor seconds of PARTS by (test or file, phase), of every worker together."""

    def __init__(self) -> None:
        """Nothing spent."""
        self.spent: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * len(PARTS))
        self._compilers, self._numba = Compilers(), Numba()

    def _now(self) -> list[float]:
        return [*processor_seconds(), self._numba.seconds, *self._compilers.seconds()]

    @contextmanager
    def charged(self, name: str, phase: str) -> Iterator[None]:
        """What is used inside goes to this name and phase."""
        before = self._now()
        yield
        self._add(name, phase, [after - was for was, after in zip(before, self._now(), strict=True)])

    def _add(self, name: str, phase: str, seconds: list[float]) -> None:
        entry = self.spent[name, phase]
        entry[:] = [sum(both) for both in zip(entry, seconds, strict=True)]

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, object, object]:
        """Importing a test file is charged to it; folders hold nothing themselves."""
        if not isinstance(collector, pytest.Module):
            return (yield)
        with self.charged(collector.nodeid, "collection"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fixtures."""
        with self.charged(item.nodeid, "setup"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """The test itself."""
        with self.charged(item.nodeid, "call"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """The end of fixtures."""
        with self.charged(item.nodeid, "teardown"):
            return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node) -> None:
        """Workers of pytest-xdist count too."""
        node.workerinput["where"] = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node) -> None:
        """What a worker counted."""
        for name, phase, seconds in getattr(node, "workeroutput", {}).get("where", []):
            self._add(name, phase, seconds)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker sends its count, the session's own process writes the table."""
        self._compilers.close()
        output = getattr(session.config, "workeroutput", None)
        if output is None:
            table = Path(session.config.getoption("--where"))
            table.parent.mkdir(parents=True, exist_ok=True)
            table.write_text(self.table(), encoding="utf-8")
        else:
            output["where"] = [[name, phase, seconds] for (name, phase), seconds in self.spent.items()]

    def table(self) -> str:
        """Folders, files and the slowest tests, most expensive first."""
        wide = len(PHASES) + len(PARTS)
        files, folders = defaultdict(lambda: [0.0] * wide), defaultdict(lambda: [0.0] * wide)
        tests, ran = defaultdict(float), defaultdict(set)
        for (name, phase), parts in self.spent.items():
            file, both = name.partition("::")[0], parts[0] + parts[1]
            folder = "/".join(file.split("/")[:2]) if file.count("/") > 1 else "tests, no folder"
            for row in (files[file], folders[folder]):
                row[PHASES.index(phase)] += both
                for at, seconds in enumerate([*parts[1:], both], len(PHASES)):
                    row[at] += seconds
            if phase != "collection":
                tests[name] += both
                for each in (file, folder):
                    ran[each].add(name)
        total = [sum(column) for column in zip(*files.values(), strict=True)] or [0.0] * wide
        ran["all"] = {name for named in ran.values() for name in named}
        whole = sum(processor_seconds())
        lines = [f"Processor seconds of {len(ran['all'])} tests; {whole:.0f} s of all processes with their start."]
        for title, rows in (("folder", {"all": total, **folders}), ("file", files)):
            heads = " | ".join([title, "tests", *PHASES, *PARTS[1:], "all"])
            lines += ["", f"| {heads} |", "|---" + "|---:" * (wide + 1) + "|"]
            for name, row in sorted(rows.items(), key=lambda item: -item[1][-1]):
                lines.append(f"| {name} | {len(ran[name])} | " + " | ".join(f"{seconds:.1f}" for seconds in row) + " |")
        lines += ["", "| test | all |", "|---|---:|"]
        slowest = sorted(tests.items(), key=lambda item: -item[1])[:SLOWEST]
        return "\n".join(lines + [f"| {name} | {seconds:.1f} |" for name, seconds in slowest]) + "\n"
