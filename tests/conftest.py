"""What every test shares: which tests this machine can run, and the option that records golden files."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["tests.support.where"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this project."""
    parser.addoption("--update-golden", action="store_true", help="record the golden files anew (see CONTRIBUTING.md)")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be recorded anew."""
    return bool(request.config.getoption("--update-golden"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `cuda` where there is no NVIDIA device. The harness must not open one to find out."""
    if Path("/dev/nvidiactl").exists():
        return
    skip = pytest.mark.skip(reason="no NVIDIA device")
    for item in items:
        if item.get_closest_marker("cuda") is not None:
            item.add_marker(skip)
