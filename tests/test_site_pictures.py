"""The built site in a browser: pictures of eight pages, light and dark, wide and narrow; no page scrolls sideways on a phone.

`SITE_PICTURES=FOLDER` keeps the pictures there.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

pytest.importorskip("selenium")
from selenium.webdriver import Chrome  # noqa: E402

from tests.support.driven_browser import driven, resize, served, width_of  # noqa: E402

pytestmark = [pytest.mark.thorough, pytest.mark.fetches]
ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "index.html", "start.html", "concepts/process.html", "concepts/regret.html", "guides/agent.html", "results/processors.html",
    "reference/graph.html", "suite.html",
)  # fmt: skip
WIDE, PHONE, HEIGHT = 1280, 390, 1600


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", str(ROOT / "mkdocs.yml"), "-d", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where it is shown as people see it: a page opened as a file has no search."""
    with served(site) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    """One of a light system."""
    with driven() as driver:
        yield driver


@pytest.fixture(scope="module")
def dark_browser() -> Iterator[Chrome]:
    """One of a dark system: a page remembers what its first visit saw."""
    with driven(dark=True) as driver:
        yield driver


def test_no_page_scrolls_sideways_on_a_phone(browser: Chrome, site: Path) -> None:
    """As files: with a server every page would make the index of its search, which is a second or more of work."""
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 60
    resize(browser, PHONE, HEIGHT)
    assert {page: width for page in pages if (width := width_of(browser, page)) > PHONE} == {}


def test_a_page_that_scrolls_sideways_is_told(browser: Chrome, tmp_path: Path) -> None:
    (tmp_path / "wide.html").write_text("<!doctype html><div style='width:700px'>wide</div>", encoding="utf-8")
    resize(browser, PHONE, HEIGHT)
    assert width_of(browser, tmp_path / "wide.html") >= 700


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """Links lead out, but no page needs a script, style, font or picture of another server."""
    loads = re.compile(r"<(?:script|img|iframe|source)\b[^>]*?\bsrc(?:set)?=\"(?:https?:)?//|<link\b[^>]*?href=\"https?://")
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert {str(path) for path, text in pages.items() if loads.search(text)} == set()
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", styles)
    assert not any('class="mermaid"' in text for text in pages.values())  # the theme would load what draws it


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_drawn(browser: Chrome, dark_browser: Chrome, address: str, page: str, tmp_path: Path) -> None:
    folder, name = Path(os.environ.get("SITE_PICTURES", tmp_path)), page.removesuffix(".html").replace("/", "_")
    for width, (shade, driver) in itertools.product((WIDE, PHONE), (("light", browser), ("dark", dark_browser))):
        target = folder / f"{name}_{width}_{shade}.png"
        resize(driver, width, HEIGHT)
        driver.get(f"{address}/{page}")
        driver.save_screenshot(str(target))
        pixels = imread(target)[..., :3]
        assert pixels.shape[:2] == (HEIGHT, width) and pixels.std() > 0.02, target  # something is drawn
        assert np.median(pixels) > 0.9 if shade == "light" else np.median(pixels) < 0.25, target
