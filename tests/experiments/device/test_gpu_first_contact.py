"""What must hold on a machine that has CuPy and no gymnasium, told without either."""

from __future__ import annotations

import subprocess
import sys

import pytest

from experiments.device.card import gpu_state

LACKING = """
import runpy, sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "gymnasium" and "experiments.device.wheels" not in sys.modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Lacking())
sys.argv = ["gpu", "stages="]
runpy.run_module("experiments.gpu", run_name="__main__", alter_sys=True)
"""
"""The command, where gymnasium is there only once wheels have been looked for."""


def test_wheels_come_before_the_command_line() -> None:
    """`python -m experiments.gpu` ended with "No module named 'gymnasium'": plugins were loaded before wheels were unpacked."""
    if gpu_state():
        pytest.skip("a GPU is there")
    done = subprocess.run([sys.executable, "-c", LACKING], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert "needs a machine with an NVIDIA GPU" in done.stderr
