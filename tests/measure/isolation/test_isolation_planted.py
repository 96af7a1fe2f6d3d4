"""Kernels that try what a kernel has no business with: refused in a worker as it is, done in one that is not shut in.

Each computes the right answer first, then tries, and spoils its answer where it succeeded: OK means refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gensor_gym.cache.folders import cache_dir
from gensor_gym.measure.isolation import landlock
from gensor_gym.measure.isolation.launch import WHOLE
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers import start
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.workers.requests import TrialRequest
from gensor_gym.measure.workers.start import SWITCH
from tests.support.measure_kernels import build, kernel

QUICK = TimingRules(budget=0.01, sample=5e-4, warmup=1e-3)
CANARY = "a canary's secret"
HEADERS = """#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
"""
ATTACKS = {
    "reads a file in home": 'open(HOME "/secret", O_RDONLY) >= 0',
    "lists home": 'open(HOME, O_RDONLY | O_DIRECTORY) >= 0',
    "reads the variables of its parent": "({ char n[64]; sprintf(n, \"/proc/%d/environ\", getppid()); open(n, O_RDONLY) >= 0; })",
    "reads its parent's memory": "({ char b; struct iovec v = {&b, 1}, w = {(void *)entry, 1};"
    " process_vm_readv(getppid(), &v, 1, &w, 1, 0) >= 0 || errno != EPERM; })",
    "writes to home": 'open(HOME "/planted", O_WRONLY | O_CREAT, 0600) >= 0',
    "writes over a file in home": 'open(HOME "/mine", O_WRONLY) >= 0',
    "truncates a file in home": 'truncate(HOME "/mine", 0) == 0',
    "removes a file in home": 'unlink(HOME "/doomed") == 0',
    "lets all read a file in home": 'chmod(HOME "/secret", 0644) == 0',
    "sets a time in home": 'utimensat(AT_FDCWD, HOME "/mine", 0, 0) == 0',
    "writes to the cache of kernels": 'open(CACHE "/planted.so", O_WRONLY | O_CREAT, 0600) >= 0',
    "opens a socket": "socket(AF_INET, SOCK_STREAM, 0) >= 0",
    "opens a socket of this machine": "socket(AF_UNIX, SOCK_STREAM, 0) >= 0",
    "starts a process": "({ int p = fork(); if (!p) _exit(0); p > 0 && waitpid(p, 0, 0) == p; })",
    "runs a program": 'system("true") == 0',
    "signals its parent": "kill(getppid(), 0) == 0",
    "is another's debugger": "ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0 || errno != EPERM",
    "shares memory": "shmget(IPC_PRIVATE, 4096, 0600) >= 0",
    "raises its limits": "({ struct { unsigned long a, b; } l = {1 << 30, 1 << 30};"
    " syscall(SYS_prlimit64, getppid(), 4, &l, 0) == 0; })",
}
DEBUGGER = "is another's debugger"
FILES = ("secret", "mine", "doomed")
TOKENS = 'getenv("CANARY_TOKEN") != 0 || getenv("GENSOR_GYM_API_KEY") != 0'
FINE = {
    "starts a thread": "({ pthread_t t; pthread_create(&t, 0, (void *(*)(void *))strlen, \"\") || pthread_join(t, 0); })",
    "writes to its folder": "({ char n[999]; sprintf(n, \"%s/own\", getenv(\"TMPDIR\")); int f = open(n, O_RDWR | O_CREAT, 0600);"
    " f < 0 || close(f) || unlink(n); })",
    "reads the processor's name": 'open("/proc/cpuinfo", O_RDONLY) < 0',
}
"""What kernels and their libraries need; each says whether it failed."""


VARIABLES = {"CANARY_TOKEN": CANARY, "GENSOR_GYM_API_KEY": CANARY}


class Site:
    """A home with files, and a worker that was started with it."""

    def __init__(self, folder: Path, switch: str, patch: pytest.MonkeyPatch) -> None:
        """Of a worker that is shut in, or not."""
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir()
        self.on = switch == "on"
        mine = {"HOME": str(self.home), "GENSOR_GYM_CACHE": str(folder / "cache"), SWITCH: switch}
        for name, value in (mine | VARIABLES).items():
            patch.setenv(name, value)
        self.worker = WorkerProcess("cpu")
        self.trial("nothing", "0")

    def trial(self, name: str, expression: str) -> Measurement:
        """Try it in a kernel that is right otherwise."""
        for file in FILES:
            (self.home / file).write_text(CANARY)
        places = f'#define HOME "{self.home}"\n#define CACHE "{cache_dir() / "kernels"}"\n'
        right = kernel("right", tag=name)
        attack = f"gemm(a, b, c);\n    static int tried;\n    if (!tried++ && ({expression})) c[0] += 1;\n"
        source = HEADERS + places + right.source.replace("gemm(a, b, c);\n}", attack + "}")
        assert attack in source
        return self.worker.ask(TrialRequest(build(replace(right, source=source), self.folder), 1, 0.0, rules=QUICK))


@pytest.fixture(scope="module", params=["on", "off"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        made = Site(tmp_path_factory.mktemp("site"), request.param, patch)
        yield made
        made.worker.close()


needs_both = pytest.mark.skipif(not landlock.version(), reason="this system has no Landlock, or a container forbids it")


def succeeded(names: Iterable[str]) -> str:
    """How many of these attacks succeed, as an expression."""
    return " + ".join(f"!!({ATTACKS[name]})" for name in names)


@needs_both
def test_attacks_are_refused_that_succeed_otherwise(site: Site) -> None:
    """All in one kernel: none succeeds in a worker that is shut in, every one in another."""
    if site.on:
        result = site.trial("all", f"({succeeded(ATTACKS)}) != 0")
        assert result.status is Status.OK and result.conditions["isolation"] == WHOLE, result.error
        assert {path.name: path.read_text() for path in site.home.iterdir()} == dict.fromkeys(FILES, CANARY)
    else:
        names = ATTACKS.keys() - {DEBUGGER}
        assert site.trial("all", f"({succeeded(names)}) == {len(names)}").status is Status.WRONG_ANSWER


@needs_both
@pytest.mark.thorough
@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_refused(site: Site, name: str) -> None:
    if not site.on and name == DEBUGGER:
        pytest.skip("it would stop the process that runs the tests")
    result = site.trial(name, ATTACKS[name])
    assert result.status is (Status.OK if site.on else Status.WRONG_ANSWER), result.error


def test_variables_that_are_not_on_the_list_are_not_passed_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert site.trial("reads tokens", TOKENS).status is Status.OK
    site.worker.close()
    monkeypatch.setattr(start, "passed_on", lambda variables, *_: dict(variables))
    assert site.trial("reads tokens", TOKENS).status is Status.WRONG_ANSWER
    site.worker.close()


@pytest.mark.thorough
@pytest.mark.parametrize("name", FINE)
def test_what_kernels_need_they_may(site: Site, name: str) -> None:
    if not site.on and name == "writes to its folder":
        pytest.skip("one that is not shut in has no folder of its own")
    assert site.trial(name, FINE[name]).status is Status.OK


@needs_both
def test_threads_filters_and_limits(site: Site) -> None:
    """What the process is from its first thread on: no dump of its memory, no new privileges, a filter."""
    site.trial("nothing", "0")
    status = Path(f"/proc/{site.worker.pid}/status").read_text()
    limits = Path(f"/proc/{site.worker.pid}/limits").read_text()
    tasks = list(Path(f"/proc/{site.worker.pid}/task").iterdir())
    filters = {line for task in tasks for line in (task / "status").read_text().splitlines() if line.startswith("Seccomp:")}
    assert filters == ({"Seccomp:\t2"} if site.on else {"Seccomp:\t0"})
    assert ("NoNewPrivs:\t1" in status) is site.on
    assert any(line.split()[4:6] == ["0", "0"] for line in limits.splitlines() if line.startswith("Max core file")) or not site.on


@pytest.mark.thorough
def test_the_folder_of_a_worker_goes_with_it(site: Site) -> None:
    """And one that a run left behind, a week later."""
    site.worker.close()
    (cache_dir() / "scratch" / "worker-killed").mkdir(parents=True, exist_ok=True)
    os.utime(cache_dir() / "scratch" / "worker-killed", (1e9, 1e9))
    if not site.on:
        (cache_dir() / "scratch" / "worker-killed").rmdir()
    site.trial("nothing", "0")
    assert len(list((cache_dir() / "scratch").glob("*"))) == site.on
    site.worker.close()
    assert not list((cache_dir() / "scratch").glob("*")) and os.path.isdir(site.home)
