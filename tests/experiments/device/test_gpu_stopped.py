"""`gensor gpu` stopped in the middle of a stage: one line, code 130, and nothing that was measured is measured again or lost."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.common.journal import read_rows
from gensor_gym.locate import ROOT

FILES = {"correctness": ("correctness.jsonl",), "tables": ("recorded.jsonl", "recorded_tensor.jsonl", "recorded_test.jsonl")}


def begun(words: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.gpu_command", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)


def rows_of(out: Path, stage: str) -> list[dict]:
    return [row for name in FILES[stage] for row in read_rows(out / name)]


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", FILES)
def test_stopped_in_the_middle_and_given_again(stage: str, number: signal.Signals, tmp_path: Path) -> None:
    """Also in its first stage, before which no other has ended."""
    out = tmp_path / "out"
    with begun([f"out={out}", f"stages={stage}", "hardware=h200", "budget_s=100"]) as process:
        deadline = time.monotonic() + 100
        while len(rows_of(out, stage)) < 5 and time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.01)
        time.sleep(random.uniform(0.0, 0.4))
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    first = rows_of(out, stage)
    time.sleep(0.2)
    assert rows_of(out, stage) == first, "the stage's process goes on"
    assert process.returncode == 130 and "Traceback" not in said, said
    last = said.splitlines()[-1]
    assert last.startswith("Stopped. This goes on from there: gensor gpu "), said
    assert not json.loads((out / "summary.json").read_text())["complete"]
    words = shlex.split(last.partition("gensor gpu ")[2])
    assert words[-1] == f"previous={out}"
    with begun(words) as process:
        said = process.communicate(timeout=200)[1]
    assert process.returncode == 0, said
    rows = rows_of(out, stage)
    keys = [row["key"] for row in rows]
    assert len(rows) > len(first) and len(set(keys)) == len(keys)
    assert [row for row in rows if row["key"] in {row["key"] for row in first}] == first
    assert json.loads((out / "summary.json").read_text())["stages"][stage]["status"] == "done"
