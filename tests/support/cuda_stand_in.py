"""A machine with an H100 that is none: what processes find on their paths makes `backend="cuda"` run, up to the device itself.

Workers, pipes, cubins of NVRTC and replies are real; CuPy is `tests/support/stand_in/cupy.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gensor_gym.measure import backend as backends
from gensor_gym.measure.devices.presence import gpu_names

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).with_name("stand_in")
WORDS = "GENSOR_GYM_STAND_IN"


def variables(words: Path) -> dict[str, str]:
    """Variables of a process on that machine; what goes wrong there is in the file `words`."""
    return {
        "PATH": os.pathsep.join([str(FOLDER / "bin"), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(FOLDER)]),
        "GENSOR_GYM_REFERENCE": "host",
        WORDS: str(words),
    }


def enter(patch: pytest.MonkeyPatch, words: Path) -> None:
    """Make this process one of that machine, which opens no device itself, until the patch is undone."""
    for name, value in variables(words).items():
        patch.setenv(name, value)
    patch.syspath_prepend(str(FOLDER))
    patch.setattr(backends, "_live", {})
    gpu_names.cache_clear()


def leave() -> None:
    """End the workers, before the patch is undone; afterwards GPUs are looked for anew."""
    backends.close_backends()
    gpu_names.cache_clear()
