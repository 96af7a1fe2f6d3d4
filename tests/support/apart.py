"""Checks that may end their process: a kernel that touches a page that nobody may touch does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def in_a_process_of_its_own(module: str, call: str) -> None:
    """The call, of names of a module of tests, ends well; skipped where nothing makes such pages."""
    if sys.platform != "linux":
        pytest.skip("guard pages are made with Linux's mmap")
    command = [sys.executable, "-X", "faulthandler", "-c", f"from {module} import *\n{call}"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
