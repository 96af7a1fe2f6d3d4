"""What is said while functions are compiled."""

from __future__ import annotations

import io
import subprocess
import sys
from types import SimpleNamespace

import numba
import pytest

from gensor_gym.graph.compiling.notice import PATIENCE_S, QUIET, Notice

LINE = "gensor_gym: compiling, once; it is kept for the next time\n"


class Terminal(io.StringIO):
    """Text that says it is a terminal's."""

    def isatty(self) -> bool:
        return True


def function(module: str | None) -> SimpleNamespace:
    return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=SimpleNamespace(__module__=module))})


def said(out: io.StringIO, seconds: list[float], module: str | None = "gensor_gym.graph.rules", silent: bool = False) -> str:
    """What is written of functions that take so many seconds, each of which calls one of Numba's that takes half of it."""
    now = [0.0]
    notice = Notice(lambda: out, lambda: now[0], lambda: silent)
    for each in seconds:
        notice.on_start(function(module))
        notice.on_start(function("numba.np.arrayobj"))
        now[0] += each / 2
        notice.on_end(function("numba.np.arrayobj"))
        now[0] += each / 2
        notice.on_end(function(module))
        now[0] += 100.0
    return out.getvalue()


def test_a_line_is_written_once_and_only_of_what_takes_long() -> None:
    short = PATIENCE_S / 2
    assert said(io.StringIO(), [short, short]) == "", "time between two compilations does not count"
    assert said(io.StringIO(), [short, short, short, 9.0, 9.0]) == LINE
    assert said(io.StringIO(), [9.0], silent=True) == "" == said(io.StringIO(), [9.0], "somebody.elses")
    assert said(io.StringIO(), [9.0], None) == "", "a function made from its text has no module"


def test_on_a_terminal_it_says_how_far_it_is_and_leaves_one_line() -> None:
    assert said(Terminal(), [9.0]) == LINE + "\r1 functions, 4 s\x1b[K" + "\r\x1b[K"


COMPILE = """
import time, multiprocessing, sys
from gensor_gym.graph.compiling import notice
from gensor_gym.graph.compiled import lean
notice.PATIENCE_S = 0.0
def work():
    import numba
    def one(x): return x
    one.__module__ = "gensor_gym.one"
    numba.njit(one)(1)
if __name__ == "__main__":
    if sys.argv[1] == "worker":
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start(); process.join()
    else:
        work()
"""


@pytest.mark.thorough
@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_a_process_says_it_and_a_worker_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def heard(how: str) -> str:
        done = subprocess.run([sys.executable, "-c", COMPILE, how], capture_output=True, text=True, check=True)
        return done.stderr

    monkeypatch.delenv(QUIET, raising=False)
    assert heard("itself") == LINE and heard("worker") == ""
    monkeypatch.setenv(QUIET, "1")
    assert heard("itself") == ""
