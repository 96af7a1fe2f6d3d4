"""An end for long runs: with `--seconds=N` no test begins after N seconds; `-rs` says how many were left."""

from __future__ import annotations

import time

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of this plugin."""
    parser.addoption("--seconds", type=float, metavar="N", help="skip the tests that have not begun after N seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Ends nothing unless asked."""
    if (seconds := config.getoption("--seconds")) is not None:
        config.pluginmanager.register(Until(seconds), "until")


class Until:
    """Skips what comes after `seconds` (s) of this process."""

    def __init__(self, seconds: float) -> None:
        """The time runs from here."""
        self.seconds, self.end = seconds, time.monotonic() + seconds

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Too late for this test?"""
        if time.monotonic() > self.end:
            pytest.skip(f"not begun within {self.seconds:g} s")
