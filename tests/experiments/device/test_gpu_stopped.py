"""`gensor gpu` stopped in the middle of a stage: one line, code 130, and nothing that was measured is measured again or lost."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from experiments.device.lease import RESULTS
from gensor_gym.locate import ROOT


def begun(words: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.gpu_command", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)


def rows_of(out: Path) -> list[dict]:
    if not (out / RESULTS).exists():
        return []
    with tarfile.open(out / RESULTS) as tar:
        names = tar.getnames()
        data = tar.extractfile("correctness.jsonl").read() if "correctness.jsonl" in names else b""  # type: ignore[union-attr]
    return [json.loads(line) for line in data.splitlines()]


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_in_the_middle_and_given_again(number: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with begun([f"out={out}", "stages=correctness", "hardware=h200", "deadline_s=100"]) as process:
        deadline = time.monotonic() + 100
        while len(rows_of(out)) < 5 and time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)
        time.sleep(random.uniform(0.0, 0.4))
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    first = rows_of(out)
    time.sleep(0.5)
    assert rows_of(out) == first and len(first) >= 5
    assert process.returncode == 130 and "Traceback" not in said, said
    last = said.splitlines()[-1]
    assert last.startswith("Stopped. This goes on from there: gensor gpu "), said
    assert not json.loads((out / "summary.json").read_text())["complete"]
    with begun(shlex.split(last.partition("gensor gpu ")[2])) as process:
        said = process.communicate(timeout=200)[1]
    assert process.returncode == 0, said
    rows = rows_of(out)
    keys = [row["key"] for row in rows]
    assert len(rows) > len(first) and len(set(keys)) == len(keys)
    assert [row for row in rows if row["key"] in {row["key"] for row in first}] == first
    assert json.loads((out / "summary.json").read_text())["stages"]["correctness"]["status"] == "done"
