"""Two runs in one output: the second is refused in one line, exit code 2, and writes no line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("sb3_contrib")

from agents.runs.journal import Journal, locked  # noqa: E402
from experiments import entry  # noqa: E402
from gensor_gym.graph.compiling.notice import QUIET  # noqa: E402
from tests.support.thorough import thorough_but  # noqa: E402

GEMM = "gemm(m=64, n=64, k=64)"
COMMANDS = {
    "compare": [f"operator={GEMM}", "backend=analytic", "hardware=h200", "strategy=random_walk", "wandb.mode=disabled"],
    "train": ["agent=columns", "env.hardware=h200", "wandb.mode=disabled"],
    "fine_tune": [
        "env.hardware=cascade_lake", "env.backend=analytic", "checkpoint=agents/data/policies/columns_cpu",
        "store={here}/s.sqlite",
    ],
    "tune": ["tune=markov"],
    "record": [f"operator={GEMM}", "space=compact", "machine=mine"],
    "study": ["experiment=recorded"],
    "generalise": ["evaluations=4096"],
    "bench": ["suite=env"],
}  # fmt: skip
LINES = {"tune": "markov.scores.jsonl", "bench": "env.jsonl"}
"""What these hold; the others hold the folder."""


@pytest.mark.parametrize("name", thorough_but(COMMANDS, "train", "bench"))
def test_the_second_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (out := tmp_path / "out").mkdir()
    words = [word.replace("{here}", str(tmp_path)) for word in COMMANDS[name]]
    monkeypatch.setattr(sys, "argv", ["gensor", name, *words, f"output={out}"])
    monkeypatch.setenv(QUIET, "1")
    with Journal(out / LINES[name], ()) if name in LINES else locked(out):
        before = {path: path.read_bytes() for path in out.rglob("*.jsonl")}
        with pytest.raises(SystemExit) as ended:
            entry.main()
        assert {path: path.read_bytes() for path in out.rglob("*.jsonl")} == before
    (line,) = capfd.readouterr().err.splitlines()
    assert ended.value.code == 2 and line.startswith(f"another process is writing to {out}"), line
    assert "wait for it or name another folder with output=" in line
