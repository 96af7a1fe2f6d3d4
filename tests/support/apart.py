"""Checks that may end their process: a kernel that touches a page that nobody may touch does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def in_a_process_of_its_own(module: str, call: str) -> None:
    """The call, of names of a module of tests, ends well."""
    command = [sys.executable, "-X", "faulthandler", "-c", f"from {module} import *\n{call}"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
