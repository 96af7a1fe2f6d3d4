"""Long commands, stopped at some moment: they end soon, with code 130 and a line how to go on, and without a traceback."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gensor_gym.locate import ROOT

pytest.importorskip("sb3_contrib")

SCRIPT = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from experiments.entry import main; main()"
"""A test run in the background inherits the signal ignored."""
GEMM = "gemm(m=64, n=64, k=64)"
MODEL = ["backend=analytic", "hardware=h200"]
TUNED = ["fine_tune", "env.hardware=cascade_lake", "env.backend=analytic", "output={here}/out", "store={here}/s.sqlite"]
COMMANDS = {
    "optimize": ["optimize", GEMM, *MODEL, "trials=100000", "strategy=random_walk"],
    "compare": ["compare", f"operator={GEMM}", *MODEL, "budget.trials=100000", "output={here}/out", "wandb.mode=disabled"],
    "multirun": [
        "compare", "-m", f"operator={GEMM}", *MODEL, "seed=0,1", "strategy=[random_walk],[markov]", "budget.trials=100000",
        "output={here}/out", "hydra.sweep.dir={here}/sweep", "wandb.mode=disabled",
    ],
    "study": ["study", "experiment=recorded", "output={here}/out", "study.workers=1"],
    "train": ["train", "agent=ppo", "env.hardware=h200", "output={here}/out", "wandb.mode=disabled"],
    "fine_tune": [*TUNED, "checkpoint=agents/data/policies/ppo_cpu"],
}  # fmt: skip


def _wait_until_it_listens(process: subprocess.Popen[str]) -> None:
    """Before, a signal ends Python as it ends any program; how soon that is depends on how busy the machine is."""
    status, deadline = Path(f"/proc/{process.pid}/status"), time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        caught = int(next(line for line in status.read_text().splitlines() if line.startswith("SigCgt")).split()[1], 16)
        if caught >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.01)
    pytest.fail(f"no signal is listened to; exit code {process.poll()}")


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_stopped_at_any_moment(name: str, tmp_path: Path) -> None:
    number, after = random.choice([signal.SIGINT, signal.SIGTERM]), random.uniform(0.0, 7.0)
    words = [word.replace("{here}", str(tmp_path)) for word in COMMANDS[name]]
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words], cwd=ROOT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            _wait_until_it_listens(process)
            said = process.communicate(timeout=after)[1]
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            try:
                said = process.communicate(timeout=60)[1]
            finally:
                process.kill()
    told = f"{number.name} after {after:.2f} s: {said}"
    assert "Traceback" not in said and "Exception ignored" not in said, told
    if process.returncode != 0:  # where it had not finished before
        assert process.returncode == 130 and f": gensor {COMMANDS[name][0]} " in said.splitlines()[-1] + " ", told
