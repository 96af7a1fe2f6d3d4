"""W&B and TensorBoard: asked before the first trial, told after the results are written, and never the reason of a failure."""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agents.cli.arguments import compose
from agents.cli.tracking import Tracking, tracking_of
from agents.runs.jobs import Jobs
from agents.runs.journal import append_row
from agents.runs.settings import Settings, settings_of
from agents.training.tracking.tensorboard import TensorBoard
from agents.training.tracking.training import followed
from agents.training.tracking.wandb_run import WandbRun, check_login
from experiments.comparison import compare as command
from experiments.comparison.compare import compare

pytest.importorskip("wandb")
TINY = [
    "strategy=random_walk", "operator=[gemm(m=24, n=20, k=28),gemv(m=20, k=12)]", "backend=analytic", "hardware=h200",
    "budget.trials=3", "figures=false",
]  # fmt: skip


def run(words: list[str]) -> tuple[Settings, dict[str, Any]]:
    settings = settings_of(compose(words))
    jobs = Jobs(settings.backend, settings.store, settings.output)
    summary = compare(settings, jobs, Console(quiet=True))
    jobs.close()
    return settings, summary


def records_of(folder: Path) -> dict[str, list[Any]]:
    """What an offline run would send, by kind, once its last record is written."""
    (path,) = folder.glob("*.wandb")
    deadline = time.monotonic() + 20
    while "exit" not in (found := parsed(path.read_bytes())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def parsed(data: bytes) -> dict[str, list[Any]]:
    """Records of LevelDB's log: blocks of pieces (checksum, length, type)."""
    from wandb.proto.wandb_internal_pb2 import Record

    at, whole, found = 7, b"", {}
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last piece of one
            record = Record.FromString(whole)
            name, whole = record.WhichOneof("record_type"), b""
            found.setdefault(name, []).append(getattr(record, name))
    return found


def items_of(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


@pytest.mark.thorough
def test_every_job_is_a_run_with_the_same_metrics_and_one_is_the_whole(tmp_path: Path) -> None:
    words = ["wandb.entity=me", "wandb.tags=[a,b]", "wandb.group=mine", f"output={tmp_path / 'out'}"]
    settings, summary = run([*TINY, *words])
    folders = {path.name.rpartition("-")[2]: path for path in (tmp_path / "out" / "wandb").glob("offline-run-*")}
    keys = [job.key for job in settings.jobs]
    assert len(folders) == 3 and set(keys) < set(folders)
    for job, row in zip(settings.jobs, summary["rows"], strict=True):
        records = records_of(folders[job.key])
        about = records["run"][0]
        assert (about.run_id, about.run_group, about.entity, list(about.tags)) == (job.key, "mine", "me", ["a", "b"])
        config = items_of(about.config.update)
        assert (config["operator"], config["strategy"], config["seed"]) == (str(job.operator), "random_walk", 0)
        history = [items_of(one.item) for one in records["history"]]
        assert [one["trial"] for one in history] == [0, 1, 2]
        assert all({"seconds", "best_s", "elapsed_s", "status"} <= set(one) for one in history)
        assert history[-1]["best_s"] == row["retimed"]["median"]
    (whole,) = set(folders) - set(keys)
    assert "artifact" in records_of(folders[whole])


def test_tensorboard_shows_the_same_metrics(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings, summary = run([*TINY, "wandb.mode=disabled", "tensorboard=true", f"output={tmp_path / 'out'}"])
    for job, row in zip(settings.jobs, summary["rows"], strict=True):
        (folder,) = (tmp_path / "out" / "tensorboard").glob(f"*_{job.key[:6]}")
        events = EventAccumulator(str(folder)).Reload()
        best = events.Scalars("best_s")
        assert [point.step for point in best] == [0, 1, 2] and best[-1].value == pytest.approx(row["retimed"]["median"])


def test_options_are_checked() -> None:
    assert tracking_of({"mode": "online", "project": "p", "tags": None}) == Tracking("online", "p")
    wrong = {"wandb.tags 'a'": {"tags": "a"}, "wandb.entity 3": {"entity": 3}, "wandb has no name": {"name": "x"}}
    for text, bad in {**wrong, "wandb.mode 'loud'": {"mode": "loud"}}.items():
        with pytest.raises(ValueError, match=text):
            tracking_of({"mode": "offline", **bad})


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A user who has never logged in."""
    import wandb

    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    wandb.teardown()
    yield monkeypatch
    wandb.teardown()


def test_without_a_key_nothing_is_begun(
    nobody: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody.setattr(sys, "argv", ["compare", *TINY, "wandb.mode=online", f"output={tmp_path / 'out'}"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    said = capsys.readouterr()
    (line,) = (said.out + said.err).strip().splitlines()
    assert ended.value.code == 2 and line.startswith("wandb.mode=online: no W&B key is known; `wandb login`")
    assert not (tmp_path / "out" / "results.jsonl").exists()


class _Server(BaseHTTPRequestHandler):
    """A stand-in: knows every key unless told otherwise, and answers nothing else."""

    known = True

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if "viewer" in asked.lower() and "upsert" not in asked.lower():
            viewer = {"id": "u", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}
            self.answer(200 if self.known else 401, {"data": {"viewer": viewer if self.known else None}})
        else:
            self.answer(400, {"errors": [{"message": "the project is full"}]})

    def do_GET(self) -> None:
        self.answer(404, {})

    def answer(self, code: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def server(nobody: pytest.MonkeyPatch) -> Iterator[type[_Server]]:
    handler = type("Server", (_Server,), {})
    made = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    nobody.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{made.server_port}")
    nobody.setenv("WANDB_API_KEY", "0123456789" * 4)
    nobody.setenv("WANDB_INIT_TIMEOUT", "10")
    yield handler
    made.shutdown()


@pytest.mark.thorough
def test_a_key_that_the_server_refuses_is_said(server: type[_Server]) -> None:
    server.known = False
    with pytest.raises(ValueError, match="wandb.mode=online: .*; `wandb login`"):
        check_login(Tracking("online"))


@pytest.mark.thorough
def test_a_server_that_fails_later_is_a_warning(
    server: type[_Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_login(Tracking("online"))
    _, summary = run([*TINY, "wandb.mode=online", "operator=gemv(m=20, k=12)", f"output={tmp_path}"])
    assert json.loads((tmp_path / "summary.json").read_text())["rows"] == summary["rows"]
    warned = capsys.readouterr().err.strip().splitlines()
    assert 1 <= len(warned) <= 2 and all("it is not tracked any further, results are in" in line for line in warned)


@pytest.mark.thorough
def test_after_a_failure_a_run_says_nothing_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = WandbRun(Tracking(), "key", "name", "group", {}, tmp_path, "search").begin()
    run._run.log = None  # something that cannot be called
    run.log([{"a": 1}])
    run.log([{"a": 2}])
    run.summary({"b": 3})
    assert run.end() is not None and len(capsys.readouterr().err.splitlines()) == 1


class _Board:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def log(self, rows: list[dict[str, Any]]) -> None:
        self.rows += rows


def test_curves_are_shown_while_they_grow(tmp_path: Path) -> None:
    curve, validation = tmp_path / "curve.jsonl", tmp_path / "validation.jsonl"
    append_row(curve, {"steps": 1, "mean_return": 0.5})
    fresh, resumed = _Board(), _Board()
    with followed([curve, validation], [(fresh, -1.0), (resumed, 1.0), (TensorBoard(tmp_path / "events"), -1.0)], every=0.05):
        append_row(curve, {"steps": 2, "mean_return": 0.6})
        deadline = time.monotonic() + 20
        while len(resumed.rows) < 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [row["steps"] for row in resumed.rows] == [2], "while it runs, and nothing that the server knows"
        append_row(validation, {"steps": 2, "score": 1.0})
    assert sorted(row["steps"] for row in fresh.rows) == [1, 2, 2] and len(resumed.rows) == 2
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "events")).Reload()
    assert [(point.step, round(point.value, 3)) for point in events.Scalars("mean_return")] == [(1, 0.5), (2, 0.6)]
