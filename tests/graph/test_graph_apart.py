"""The process that compiles beside another: what it makes is found, it never outlives its parent, and nothing is made twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numba
import pytest

from gensor_gym.graph.compiling.notice import QUIET

ROOT = Path(__file__).resolve().parents[2]

if numba.config.DISABLE_JIT:
    pytest.skip("nothing is compiled", allow_module_level=True)

SHARED = """
import numpy as np
from gensor_gym.graph.compiled import compiled, early, lean, outlined
@outlined
def product(a, b):
    found = 0.0
    for i in range(a.shape[0]):
        found += a[i] * b[i]
    return found
@early
def squared(a):
    return product(a, a)
@compiled
def doubled(a):
    return 2.0 * product(a, a)
@early
def wrong(a):
    return a.no_such_thing
"""
BEGIN = """
import multiprocessing, os, signal, sys, time
import numpy as np
import shared
from gensor_gym.graph.compiling.apart import apart
from gensor_gym.graph.compiling.early import at_once, waiting
values = np.arange(4.0)
def counts(function):
    return sum(function.stats.cache_hits.values()), sum(function.stats.cache_misses.values())
def settled(function):
    limit = time.monotonic() + 60
    while not function.signatures and time.monotonic() < limit:
        assert function(values) in (14.0, 28.0)
        time.sleep(0.02)
    return counts(function)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "shared.py").write_text(SHARED)
    path = f"{ROOT}{os.pathsep}{tmp_path}"
    return os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "PYTHONPATH": path, QUIET: "1"}


def started(text: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", BEGIN + text]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(text: str, environment: dict[str, str]) -> list[str]:
    """Lines that a process prints, which has nothing to say on its standard error."""
    process = started(text, environment)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0 and err == "", err
    return out.splitlines()


def is_gone(process: int, limit_s: float) -> bool:
    """Whether a process ends within so many seconds, or is but a name that nobody asked for."""
    limit = time.monotonic() + limit_s
    while time.monotonic() < limit:
        try:
            if ") Z " in Path(f"/proc/{process}/stat").read_text():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


LIVE = """
print(shared.squared(values), shared.squared.signatures == [], apart._process.pid)
pid = os.fork()
if pid == 0:
    mine = apart._process
    sys.exit(0 if mine is None else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), apart._process.poll())
print(settled(shared.squared), counts(shared.product))
with at_once():
    print(shared.doubled(values), shared.doubled.signatures == [])
    print(settled(shared.doubled), counts(shared.product))
print(shared.squared(values), apart._process.poll())
"""


def test_answers_come_at_once_and_the_compiled_ones_later(environment: dict[str, str]) -> None:
    """Nothing is compiled in the process that asks; its fork has no part in that; nothing is left when it ends."""
    first, *others = said(LIVE, environment)
    value, unmet, helper = first.split()
    assert (value, unmet) == ("14.0", "True") and is_gone(int(helper), 5.0)
    assert others == ["0 None", "(1, 0) (1, 0)", "28.0 True", "(1, 0) (1, 0)", "14.0 None"]
    found = said("print(shared.squared(values), counts(shared.squared), apart._process)", environment)
    assert found == ["14.0 (1, 0) None"], "the next process finds it on disk and needs no other"


KILLED = """
shared.squared(values)
print(apart._process.pid, flush=True)
time.sleep(100)
"""


def test_it_ends_with_a_parent_that_is_killed(environment: dict[str, str]) -> None:
    process = started(KILLED, environment)
    assert process.stdout is not None
    helper = int(process.stdout.readline())
    assert Path(f"/proc/{helper}").exists()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    assert is_gone(helper, 10.0)


WAITED = """
with waiting(), at_once():
    print(shared.squared(values))
print(*counts(shared.squared), *counts(shared.product), apart._process)
"""


@pytest.mark.thorough
def test_of_two_processes_one_compiles(environment: dict[str, str]) -> None:
    """Both compile for themselves what they are to wait for, at the same time."""
    processes = [started(WAITED, environment) for _ in range(2)]
    lines = [process.communicate(timeout=100)[0].splitlines() for process in processes]
    assert [line[0] for line in lines] == ["14.0", "14.0"]
    assert sorted(line[1] for line in lines) == ["0 1 0 1 None", "1 0 1 0 None"]


WORKER = """
def work():
    print(shared.squared(values), len(shared.squared.signatures), apart._process, flush=True)
worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
worker.join()
"""


@pytest.mark.thorough
def test_a_worker_compiles_for_itself(environment: dict[str, str]) -> None:
    assert said(WORKER, environment) == ["14.0 1 None"]


@pytest.mark.thorough
def test_where_nothing_can_be_kept_it_is_compiled_here(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    nowhere = environment | {"NUMBA_CACHE_DIR": str(tmp_path / "file")}
    assert said("print(shared.squared(values), len(shared.squared.signatures), apart._process)", nowhere) == ["14.0 1 None"]


WRONG = """
limit = time.monotonic() + 60
try:
    shared.wrong(values)
except Exception as error:
    print(type(error).__name__)
shared.squared(values)
while not apart._broken and time.monotonic() < limit:
    shared.squared(values)
print(apart._process, counts(shared.squared))
"""


@pytest.mark.thorough
def test_what_cannot_be_compiled_is_an_error_here(environment: dict[str, str]) -> None:
    """The other process ends over it without a word, and the rest is compiled here."""
    assert said(WRONG, environment) == ["TypingError", "None (0, 1)"]
