"""Where the tests' time goes: `make test ARGS=--where=FILE` writes a table of processor time by test file.

Processor time and not the clock, so that a busy machine does not alter the table: user and system seconds of the test
process, and of its children once they have ended (a pool that lives on is charged to the test that ends it). What a test
imports or compiles first in a process is charged to it.
"""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PHASES = ("collection", "setup", "call", "teardown")
SLOWEST = 60
"""Tests that are listed by name."""


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


class Ledger:
    """Own and children's processor seconds by (test or file, phase), of every worker together."""

    def __init__(self) -> None:
        self.spent: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])

    @contextmanager
    def charged(self, name: str, phase: str) -> Iterator[None]:
        """What is used inside goes to this name and phase."""
        before = processor_seconds()
        yield
        self._add(name, phase, [after - was for was, after in zip(before, processor_seconds(), strict=True)])

    def _add(self, name: str, phase: str, seconds: list[float]) -> None:
        entry = self.spent[name, phase]
        entry[:] = [entry[0] + seconds[0], entry[1] + seconds[1]]

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
        output = getattr(session.config, "workeroutput", None)
        if output is None:
            Path(session.config.getoption("--where")).write_text(self.table(), encoding="utf-8")
        else:
            output["where"] = [[name, phase, seconds] for (name, phase), seconds in self.spent.items()]

    def table(self) -> str:
        """Files and the slowest tests, most expensive first."""
        files, tests, ran = defaultdict(lambda: [0.0] * 6), defaultdict(float), defaultdict(set)
        for (name, phase), (own, children) in self.spent.items():
            row = files[name.partition("::")[0]]
            for at, seconds in ((PHASES.index(phase), own + children), (4, children), (5, own + children)):
                row[at] += seconds
            if phase != "collection":
                tests[name] += own + children
                ran[name.partition("::")[0]].add(name)
        total, count = [sum(column) for column in zip(*files.values(), strict=True)], sum(map(len, ran.values()))
        lines = [f"Processor seconds of {count} tests; {sum(processor_seconds()):.0f} s of all processes with their start.", ""]
        lines += ["| file | tests | " + " | ".join(PHASES) + " | children of these | all |", "|---" + "|---:" * 7 + "|"]
        for name, row in [("all files", total), *sorted(files.items(), key=lambda item: -item[1][5])]:
            lines.append(f"| {name} | {len(ran[name]) or count} | " + " | ".join(f"{seconds:.1f}" for seconds in row) + " |")
        lines += ["", "| test | all |", "|---|---:|"]
        slowest = sorted(tests.items(), key=lambda item: -item[1])[:SLOWEST]
        return "\n".join(lines + [f"| {name} | {seconds:.1f} |" for name, seconds in slowest]) + "\n"
