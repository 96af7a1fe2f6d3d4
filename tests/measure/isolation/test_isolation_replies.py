"""What a worker sends is looked at and never run: forged replies cost the worker, and nothing else."""

from __future__ import annotations

import json
import os
import pickle
import struct
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers import process
from gensor_gym.measure.workers.process import WorkerLost, WorkerProcess
from gensor_gym.measure.workers.replies import decoded, encoded
from gensor_gym.measure.workers.requests import Built, CompareRequest, CompileRequest, TrialRequest
from gensor_gym.measure.workers.start import Start
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


FAKE = "import os, struct, sys, time; body = {!r}; os.write(int(sys.argv[3]), struct.pack('<Q', len(body)) + body); time.sleep(9)"


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
