"""What is used of cuda-bindings: names of the driver's enumerations and NVRTC, in the release installed and in others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gensor_gym.codegen.cuda import nvrtc
from tests.support.bindings_told import EXPECTED, numbers_of
from tests.support.fake_driver import KINDS, Driver

RELEASES = {"cuda-bindings==13.0.3": "EnumType", "cuda-bindings>=13.5,<14": "FastEnumMetaclass"}
"""The pinned release and the newest, and what the classes of their enumerations are."""


@pytest.mark.parametrize("kind", KINDS)
def test_either_kind_of_enumeration_gives_the_numbers(kind: str) -> None:
    """`enum.IntEnum`, and the classes of newer releases, which take no subscript."""
    assert numbers_of(Driver(kind)) == EXPECTED


@pytest.mark.skipif(not nvrtc.is_available(), reason=f"no cuda-bindings: pip install {nvrtc.PACKAGES}")
def test_the_installed_release_gives_the_numbers() -> None:
    """Without a driver."""
    from cuda.bindings import driver

    assert numbers_of(driver) == EXPECTED


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_releases_in_turn(tmp_path: Path, release: str) -> None:
    """Each from a folder of its own (pip needs a network), with the NVRTC that is installed."""
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path), release]
    subprocess.run(install, check=True, timeout=240)
    settings = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command, root = [sys.executable, "-m", "tests.support.bindings_told"], Path(__file__).resolve().parents[3]
    done = subprocess.run(command, cwd=root, env=settings, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert Path(told["file"]).is_relative_to(tmp_path)
    assert told["kind"] == RELEASES[release]
    assert told["numbers"] == EXPECTED
    assert told["version"] == nvrtc.version() and told["registers"] > 0
    assert "error" in told["refused"] and "kernel.cu" in told["refused"]
    assert "driver does not load" in told["map"] or "CUDA_ERROR" in told["map"]
