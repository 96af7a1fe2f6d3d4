"""Stage `environment` from end to end, on a device that stands in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from agents.runs.journal import read_rows
from gensor_gym.codegen.cuda import nvrtc
from tests.support import cuda_stand_in

pytest.importorskip("sb3_contrib")
pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")


@pytest.mark.thorough
def test_a_user_and_an_agent_get_through(tmp_path: Path) -> None:
    """Every use of a kernel is right, the agent has episodes, all are rows, and the stage ends near its time."""
    environment = {**os.environ, **cuda_stand_in.variables(tmp_path / "words")}
    command = [sys.executable, "-m", "tests.support.environment_stage", str(tmp_path / "out"), "30"]
    done = subprocess.run(command, env=environment, cwd=cuda_stand_in.ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    user, learned = said["result"]["parts"]["user"], said["result"]["parts"]["learned"]
    for use in ("torch", "called with torch", "called with CuPy", "bound to torch", "captured"):
        assert user[use]["error"] < 0.05, user[use]
    assert user["captured"]["replay_s"] == pytest.approx(user["measured_s"]) and len(user["exported"]["files"]) >= 4
    rows = read_rows(tmp_path / "out" / "environment.jsonl")
    kinds = Counter(row["kind"] for row in rows)
    assert kinds["episode"] == 2 and kinds["part"] == 3
    assert kinds["learned"] == learned["episodes"] >= 8 and kinds["program"] == learned["programs"] > 0
    assert all(row["samples"] and row["schedule"] for row in rows if row["kind"] == "program" and row["status"] == "OK")
    assert "terminal rewards" in said["text"] and "| 4 |" in said["text"]
