"""A training as a process of its own, stopped and killed at random moments and given again: the curve is that of one run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("sb3_contrib")

from safetensors.numpy import load_file  # noqa: E402

from experiments.commands.stopping import CODE  # noqa: E402
from experiments.common.journal import read_rows  # noqa: E402
from gensor_gym.locate import ROOT  # noqa: E402

SCRIPT = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from experiments.entry import main; main()"
"""A test run in the background inherits the signal ignored."""
AGENTS = {
    "ppo": ["agent.n_steps=16", "agent.batch_size=64", "agent.net_arch=[16]", "num_envs=8", "steps=12800", "eval_every=3200"],
    "dqn": [
        "agent.net_arch=[16]", "agent.buffer_size=600", "agent.learning_starts=200", "agent.batch_size=32", "num_envs=8",
        "steps=12800", "eval_every=3200",
    ],
    "columns": ["agent.width=8", "agent.tasks=2", "agent.programs=32", "steps=6400", "eval_every=1600"],
}  # fmt: skip
TRAIN = [
    "operators=['gemm(m=96, n=80, k=64)','gemv(m=80, k=64)']", "eval_operators=['gemm(m=64, n=48, k=40)']", "eval_episodes=2",
    "env.hardware=h200", "env.space=gensor", "curve_every=100", "checkpoint_every=640", "wandb.mode=disabled",
    "tensorboard=false", "torch_threads=1",
]  # fmt: skip
CURVES = ("curve.jsonl", "validation.jsonl")
STOPS = [signal.SIGINT, signal.SIGKILL] * 3


def begun(agent: str, out: Path) -> subprocess.Popen[str]:
    """The command."""
    words = ["train", f"agent={agent}", *AGENTS[agent], *TRAIN, f"output={out}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", SCRIPT, *words], cwd=ROOT, text=True, env=environment, **pipes)


def stop(process: subprocess.Popen[str], out: Path, number: signal.Signals) -> str:
    """Signal a training soon after the curve has grown, or once it has ended; what it said."""
    curve, deadline = out / "curve.jsonl", time.monotonic() + 100
    known = curve.stat() if curve.exists() else None
    while process.poll() is None and time.monotonic() < deadline:
        if curve.exists() and (known is None or curve.stat().st_mtime_ns != known.st_mtime_ns):
            break
        time.sleep(0.005)
    time.sleep(random.uniform(0.0, 0.4))
    process.send_signal(number)
    return process.communicate(timeout=100)[1]


@pytest.mark.thorough
@pytest.mark.parametrize("agent", [pytest.param(name, marks=() if name == "ppo" else pytest.mark.slow) for name in AGENTS])
def test_stopped_and_killed_at_random_moments(agent: str, tmp_path: Path) -> None:
    """Half of the signals leave no moment to save: what the last checkpoint does not know is done again, to the same numbers."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    with begun(agent, whole) as process:
        assert process.communicate(timeout=200)[1] is not None and process.returncode == 0
    ended, steps = [], []
    for number in random.sample(STOPS, len(STOPS)):
        with begun(agent, parts) as process:
            said = stop(process, parts, number)
        assert "Traceback" not in said, said
        ended.append(process.returncode)
        if process.returncode == CODE:
            assert "This goes on from there: gensor train " in said.splitlines()[-1], said
        assert process.returncode in (0, CODE, -signal.SIGKILL), said
        steps.append([row["steps"] for row in read_rows(parts / "curve.jsonl")][-1:])
    assert {CODE, -signal.SIGKILL} <= {*ended}, f"it ended before it was stopped: {ended}, {steps}"
    with begun(agent, parts) as process:
        said = process.communicate(timeout=200)[1]
    assert process.returncode == 0, said
    assert [name for name in CURVES if (parts / name).read_bytes() != (whole / name).read_bytes()] == [], f"{ended}, {steps}"
    one, other = (load_file(folder / "policy.safetensors") for folder in (whole, parts))
    assert list(one) == list(other) and all(one[name].tobytes() == other[name].tobytes() for name in one), f"{ended}, {steps}"
