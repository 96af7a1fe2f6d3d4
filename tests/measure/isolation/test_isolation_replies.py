"""Isolation: what workers may answer, and escapes that are planted."""

from __future__ import annotations

import json
import os
import pickle
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gensor_gym.cache.folders import cache_dir
from gensor_gym.measure.isolation import landlock
from gensor_gym.measure.isolation.launch import WHOLE
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers import process, start
from gensor_gym.measure.workers.process import WorkerLost, WorkerProcess
from gensor_gym.measure.workers.replies import decoded, encoded
from gensor_gym.measure.workers.requests import Built, CompareRequest, CompileRequest, TrialRequest
from gensor_gym.measure.workers.start import SWITCH, Start
from gensor_gym.measure.workers.wire import LARGEST_REPLY, BadReply, receive_reply, send_reply
from tests.support.measure_kernels import build, kernel

BUILT = Built(kernel("right"), "kernel.so", "gcc", 0.25)
TRIAL, COMPARE, COMPILE = TrialRequest(BUILT, 1, 0.0), CompareRequest((("a", BUILT),), 1, 3), CompileRequest(BUILT.kernel)
CONDITIONS: dict[str, object] = {"device": "x", "threads": 2, "cache": None, "hot": [1, 2.5]}
SOUND = Measurement(Status.OK, (1e-6, 0.1 + 0.2, 5e-324), CONDITIONS, "", BUILT.kernel.digest)


class Evil:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


def through_json(value: object) -> Any:
    return json.loads(json.dumps(encoded(value)))


@pytest.mark.parametrize(
    ("request_", "answer"),
    [(TRIAL, SOUND), (COMPARE, {"a": [1e-6, 2e-6], "torch": []}), (COMPILE, BUILT), (COMPILE, "refused: é")],
)
def test_answers_come_back_as_they_were(request_: object, answer: object) -> None:
    assert decoded(request_, through_json(answer)) == answer


def test_a_digest_is_that_of_the_request() -> None:
    assert decoded(TRIAL, through_json(replace(SOUND, digest="another"))).digest == BUILT.kernel.digest


GOOD = through_json(SOUND)
FORGED = [
    (TRIAL, None), (TRIAL, []), (TRIAL, "OK"), (TRIAL, {}), (TRIAL, GOOD | {"status": "BEST"}),
    (TRIAL, GOOD | {"samples": "123"}),
    (TRIAL, GOOD | {"samples": [True]}), (TRIAL, GOOD | {"samples": ["1"]}), (TRIAL, GOOD | {"samples": [10**400]}),
    (TRIAL, GOOD | {"conditions": [1]}), (TRIAL, GOOD | {"conditions": {"a": {"b": 1}}}), (TRIAL, GOOD | {"error": 5}),
    (TRIAL, GOOD | {"conditions": {"a": [[1]]}}), (COMPARE, [1.0]), (COMPARE, {"a": 1.0}), (COMPARE, {"a": [None]}),
    (COMPILE, {"path": 3, "compiler": "", "compile_seconds": 0.1}), (COMPILE, {"path": "x"}), (COMPILE, 3), ("nonsense", GOOD),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "value"), FORGED)
def test_answers_of_another_form_are_refused(request_: object, value: object) -> None:
    with pytest.raises(BadReply, match="answer to a"):
        decoded(request_, value)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (struct.pack("<Q", LARGEST_REPLY + 1), "expected at most"),
        (struct.pack("<Q", 2**63), "expected at most"),
        (struct.pack("<Q", 3) + b"abc", "no kind and value in JSON"),
        (struct.pack("<Q", 2) + b"{}", "no kind and value in JSON"),
        (struct.pack("<Q", 60_000) + b"[" * 60_000, "no kind and value in JSON"),
        (struct.pack("<Q", 9_000) + b"1" * 9_000, "no kind and value in JSON"),
        (struct.pack("<Q", 3) + b"\xff\xfe[", "no kind and value in JSON"),
    ],
)
def test_frames_that_are_no_replies(frame: bytes, words: str) -> None:
    read, write = os.pipe()
    try:
        os.write(write, frame)
        with pytest.raises(BadReply, match=words):
            receive_reply(read, time.monotonic() + 5.0)
        os.close(write)
        write = -1
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)


def test_a_reply_has_its_kind_and_value() -> None:
    read, write = os.pipe()
    send_reply(write, "stage", "load")
    assert receive_reply(read, time.monotonic() + 5.0) == ("stage", "load")
    os.close(read), os.close(write)


FAKE = (
    "import os, struct, sys, time; body = {!r}; os.write(int(sys.argv[3]), struct.pack('<Q', len(body)) + body); time.sleep(9)"
)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (["tea", 1], "'tea' of '1' is no reply"), (["stage", "nowhere"], "'stage' of 'nowhere'"),
        (["stage", []], "a list where"), (["error", 5], "a int where a text"), (["warning", {}], "a dict where a text"),
        (["answer", {}], "answer to a TrialRequest"),
        ([[], 1], "is no reply"), ([1], "no kind and value"),
    ],
)  # fmt: skip
def test_replies_that_are_none_end_the_worker(reply: object, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", FAKE.format(json.dumps(reply).encode())]
    monkeypatch.setattr(process, "start_of", lambda *_: Start(command, {"PATH": ""}))
    worker = WorkerProcess("cpu")
    with pytest.raises(WorkerLost, match=f"sent no answer in stage start, and was killed: .*{words}") as caught:
        worker.ask(TRIAL)
    assert caught.value.status is Status.CRASHED and worker.pid is None


def test_a_pickle_that_a_kernel_sends_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel writes it into every pipe that it has, and waits. The harness says so, and the next kernel is fine."""
    body = pickle.dumps(Evil(tmp_path / "planted"))
    frame = struct.pack("<Q", len(body)) + body
    source = kernel("right").source
    attack = (
        f"static const unsigned char frame[] = {{{','.join(map(str, frame))}}};\n"
        "extern long write(int, const void *, unsigned long); extern unsigned sleep(unsigned);\n"
        "for (int fd = 3; fd < 64; fd++) write(fd, frame, sizeof frame); sleep(9);\n"
    )
    planted = replace(kernel("right"), source=source.replace("gemm(a, b, c);\n}", attack + "}"))
    worker = WorkerProcess("cpu")
    rules = TimingRules(budget=0.01, sample=5e-4, warmup=1e-3)
    try:
        with pytest.raises(WorkerLost, match="sent no answer in stage verify, and was killed") as caught:
            worker.ask(TrialRequest(build(planted, tmp_path), 1, 0.0, rules=rules))
        assert caught.value.status is Status.CRASHED and not (tmp_path / "planted").exists()
        assert worker.ask(TrialRequest(build(kernel("right"), tmp_path), 1, 0.0, rules=rules)).status is Status.OK
    finally:
        worker.close()


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
