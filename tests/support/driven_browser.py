"""The distribution's Chromium, driven by Selenium: clicks and keys as a person's. Nothing is installed where it is there."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium", "chromium-driver")
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars",
           "--disable-background-networking", "--disable-component-update")  # fmt: skip

MOST_SECONDS = 60
"""Of loading a page: a browser that still loads does not end when it is told to."""


def found() -> tuple[str, str] | None:
    """Commands of a browser and its driver, None where one is missing."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def fetched() -> tuple[str, str]:
    """As `found`; brought from the distribution where it is missing. RuntimeError says what to install."""
    if (there := found()) is not None:
        return there
    if shutil.which("apt-get") and os.geteuid() == 0:
        for words in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
            subprocess.run(["apt-get", "-qq", *words], check=False, capture_output=True, timeout=240)
    if (there := found()) is None:
        raise RuntimeError(f"no Chromium with chromedriver on the PATH: apt-get install {' '.join(PACKAGES)}")
    return there


@contextmanager
def driven(width: int = 1280, height: int = 900, dark: bool = False, *options: str) -> Iterator[webdriver.Chrome]:
    """A browser with a page of that many pixels."""
    browser, driver = fetched()
    chosen = webdriver.ChromeOptions()
    chosen.binary_location = browser
    for option in (*OPTIONS, *options):
        chosen.add_argument(option)
    made = webdriver.Chrome(options=chosen, service=Service(driver))
    made.set_page_load_timeout(MOST_SECONDS)
    try:
        resize(made, width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        made.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        yield made
    finally:
        made.quit()


def resize(driver: webdriver.Chrome, width: int, height: int) -> None:
    """Make the page that large; a window cannot be as narrow as a phone."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of a folder, on this machine alone."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def width_of(driver: webdriver.Chrome, page: Path) -> int:
    """How wide the document of a file is, in pixels."""
    driver.get(page.as_uri())
    return int(driver.execute_script("return Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"))
