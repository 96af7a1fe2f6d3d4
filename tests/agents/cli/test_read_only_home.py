"""Where nothing can be written in the home, as in many containers, commands end in results, and write nothing there."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.own_cache import with_this_machine

pytest.importorskip("sb3_contrib")

from gensor_gym.locate import ROOT  # noqa: E402

GEMM = "gemm(m=64, n=48, k=40)"
COMMANDS = {
    "optimize": ["optimize", GEMM, "trials=2", "strategy=random_walk"],
    "compare": [
        "compare", f"operator={GEMM}", "strategy=random_walk", "budget.trials=2", "rounds=3", "figures=false",
        "output={here}/out",
    ],
    "train": [
        "train", "agent=a2c", "agent.net_arch=[8]", "num_envs=2", "steps=32", f"operators=['{GEMM}']",
        f"eval_operators=['{GEMM}']", "eval_episodes=2", "env.hardware=h200", "env.space=gensor", "output={here}/out",
    ],
    "tune": ["tune", "tune=markov", "rungs=[{settings: 2, tasks: 2}]", "finalists=1", "final_seeds=1", "output={here}/out"],
}  # fmt: skip
"""With W&B, offline, where that is the default."""
KEPT = {"optimize": {"tuned", "kernels"}, "compare": {"kernels", "wandb"}, "train": {"wandb"}, "tune": set()}
"""What is there afterwards in the folder that takes the place of ~/.cache/gensor_gym."""
NO_NEWS = ("gensor_gym: compiling, once", "rung 1:", "validation:")
"""Beginnings of lines that commands may say on the way."""
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1


def _as_others() -> None:
    """Modes of files bind root as well in what is executed from here on."""
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0):
        raise OSError("prctl")


def _mounted(home: Path) -> list[str]:
    """What runs the words after it where the home is a mount that is read only."""
    text = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", text, str(home)]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("this user, or this system, cannot mount")
    return words


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    (made := tmp_path / "home").mkdir()
    yield made
    made.chmod(0o700)


@pytest.mark.thorough
@pytest.mark.parametrize("by", ["its mode", "its mount"])
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_end_in_results(name: str, by: str, home: Path, tmp_path: Path) -> None:
    kept = tmp_path / "tmp" / f"gensor_gym-{os.geteuid()}"
    kept.mkdir(mode=0o700, parents=True)
    with_this_machine(kept)
    given = {name: value for name, value in os.environ.items() if not name.startswith(("GENSOR_GYM_CACHE", "XDG_", "WANDB_"))}
    environment = {**given, "HOME": str(home), "TMPDIR": str(tmp_path / "tmp"), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    before = _mounted(home) if by == "its mount" else []
    home.chmod(0o755 if before else 0o555)
    words = [word.replace("{here}", str(tmp_path)) for word in COMMANDS[name]]
    script = "from experiments.entry import main; main()"
    done = subprocess.run(
        [*before, sys.executable, "-c", script, *words], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=300, preexec_fn=None if before else _as_others,
    )  # fmt: skip
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    said = re.sub(r".*RuntimeWarning: other programs used .*\n.*\n", "", done.stderr)  # the tests on the other core
    assert not [line for line in said.splitlines() if line.strip() and not line.startswith(NO_NEWS)], done.stderr
    assert not list(home.iterdir())
    assert {path.name for path in kept.iterdir()} >= KEPT[name]
