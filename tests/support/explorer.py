"""`gensor explore` as a process of its own, for tests and pictures: `python -m tests.support.explorer FILE.png` takes one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from selenium import webdriver

from agents.explore.address import Address
from agents.explore.players import way_to_optimum
from agents.runs.settings import ROOT
from tests.support.driven_browser import driven

PATIENCE = 240.0
"""Seconds for what is compiled when caches are empty."""


@contextmanager
def running(*words: str) -> Iterator[str]:
    """The address that the command prints, without its query."""
    command = [sys.executable, "-m", "agents.explore", "--port", "0", "--no-browser", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().partition("?")[0]
        finally:
            process.terminate()


def wait_for(driver: webdriver.Chrome, condition: str, seconds: float = 20.0) -> None:
    """Until a condition in JavaScript holds; AssertionError shows the page otherwise."""
    end = time.monotonic() + seconds
    while not driver.execute_script(f"return Boolean({condition})"):
        assert time.monotonic() < end, f"{condition} did not come true:\n{driver.find_element('tag name', 'main').text}"
        time.sleep(0.02)


def ready(driver: webdriver.Chrome) -> None:
    """Until a state and its code are shown."""
    wait_for(driver, "['ready', 'finished'].includes(document.getElementById('state')?.dataset.state)", PATIENCE)
    wait_for(driver, "document.getElementById('code').dataset.query === document.getElementById('state').dataset.query")


def picture(file: str) -> None:
    """The page on the way to a certified optimum."""
    address = Address("gemm(m=512, n=512, k=512)", "h200")
    shown = Address(*address.task, actions=way_to_optimum(*address.task)[:-2])
    with running("--machine", "h200") as url, driven(1400, 1150) as driver:
        driver.get(f"{url}?{shown.query()}")
        ready(driver)
        driver.save_screenshot(file)


if __name__ == "__main__":
    picture(sys.argv[1])
