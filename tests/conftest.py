"""What every test shares: which tests this machine can run."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `cuda` where there is no NVIDIA device. The harness must not open one to find out."""
    if Path("/dev/nvidiactl").exists():
        return
    skip = pytest.mark.skip(reason="no NVIDIA device")
    for item in items:
        if item.get_closest_marker("cuda") is not None:
            item.add_marker(skip)
