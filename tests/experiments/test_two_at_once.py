"""Two runs in one output: the second is refused in one line, exit code 2, and the first goes on as if nothing had been."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sb3_contrib")

from gensor_gym.locate import ROOT  # noqa: E402
from tests.support.forked import Forks, forks  # noqa: E402

SCRIPT = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from experiments.entry import main; main()"
GEMM = "gemm(m=64, n=64, k=64)"
MODEL = ["backend=analytic", "hardware=h200"]
COMMANDS = {
    "compare": ["compare", f"operator={GEMM}", *MODEL, "strategy=random_walk", "budget.trials=100000", "wandb.mode=disabled"],
    "train": ["train", "agent=columns", "env.hardware=h200", "wandb.mode=disabled", "curve_every=64"],
    "fine_tune": [
        "fine_tune", "env.hardware=cascade_lake", "env.backend=analytic", "store={here}/s.sqlite",
        "checkpoint=agents/data/policies/columns_cpu",
    ],
    "tune": ["tune", "tune=markov"],
    "record": ["record", f"operator={GEMM}", "space=compact", "machine=mine"],
    "study": ["study", "experiment=recorded", "study.workers=1"],
    "generalise": ["generalise", "evaluations=4096"],
    "bench": ["bench", "suite=env"],
}  # fmt: skip
ROWS = {
    "compare": "results.jsonl", "train": "curve.jsonl", "fine_tune": "begun.json", "tune": "markov.scores.jsonl",
    "record": "trials.sqlite", "study": ".lock", "generalise": "plan.json", "bench": "env.jsonl",
}  # fmt: skip
"""A file in which something stands once the command is at work, or that it holds from then on."""


@pytest.fixture(scope="module")
def second() -> Iterator[Forks]:
    """Where the second ones run."""
    with forks(list(COMMANDS)) as process:
        yield process


def written(out: Path) -> dict[Path, bytes]:
    """Files that are only appended to, or not written again."""
    return {path: path.read_bytes() for path in out.rglob("*") if path.suffix in (".jsonl", ".json")}


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMMANDS)
def test_the_second_is_refused(name: str, second: Forks, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [*(word.replace("{here}", str(tmp_path)) for word in COMMANDS[name]), f"output={out}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SCRIPT, *words], cwd=ROOT, text=True, env=environment, **pipes) as first:
        sign, deadline = out / ROWS[name], time.monotonic() + 100
        while not (sign.exists() and (sign.stat().st_size or sign.name == ".lock")) and time.monotonic() < deadline:
            assert first.poll() is None, first.communicate()[1]
            time.sleep(0.01)
        before = written(out)
        ended = second.run(words)
        after = written(out)
        assert first.poll() is None, "it ended before the second began"
        first.send_signal(signal.SIGINT)
        said = first.communicate(timeout=60)[1]
    (line,) = ended.said.splitlines()
    assert ended.code == 2 and line.startswith(f"another process is writing to {out}"), line
    assert "wait for it or name another folder with output=" in line
    assert [str(path) for path, data in before.items() if not after.get(path, b"").startswith(data)] == []
    assert first.returncode == 130 and "Traceback" not in said, said
    assert [str(path) for path, data in after.items() if path.suffix == ".jsonl" and not path.read_bytes().startswith(data)] == []
