"""The built site in a browser: pictures of eight pages, light and dark, wide and narrow; no page scrolls sideways on a phone.

`SITE_PICTURES=FOLDER` keeps the pictures there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from tests.support import browser

pytestmark = [pytest.mark.thorough, pytest.mark.fetches]
ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "index.html", "start.html", "concepts/process.html", "concepts/regret.html", "guides/agent.html", "results/processors.html",
    "reference/graph.html", "leaderboard.html",
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


def test_no_page_scrolls_sideways_on_a_phone(site: Path) -> None:
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    assert len(pages) > 60
    found = browser.widths(site, pages, PHONE)
    assert {page: width for page, width in found.items() if width > PHONE} == {}


def test_a_page_that_scrolls_sideways_is_told(tmp_path: Path) -> None:
    (tmp_path / "wide.html").write_text("<!doctype html><div style='width:700px'>wide</div>", encoding="utf-8")
    assert browser.widths(tmp_path, ["wide.html"], PHONE)["wide.html"] >= 700


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """Links lead out, but no page needs a script, style, font or picture of another server."""
    loads = re.compile(r"<(?:script|img|iframe|source)\b[^>]*?\bsrc(?:set)?=\"(?:https?:)?//|<link\b[^>]*?href=\"https?://")
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert {str(path) for path, text in pages.items() if loads.search(text)} == set()
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", styles)
    assert not any('class="mermaid"' in text for text in pages.values())  # the theme would load what draws it


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_drawn(site: Path, page: str, tmp_path: Path) -> None:
    folder = Path(os.environ.get("SITE_PICTURES", tmp_path))
    brightness = {}
    for scheme in ("light", "dark"):
        target = folder / f"{page.removesuffix('.html').replace('/', '_')}_{scheme}.png"
        browser.picture(site, page, (WIDE, PHONE), HEIGHT, scheme, target)
        pixels = imread(target)[..., :3]
        assert pixels.shape[:2] == (HEIGHT, WIDE + PHONE)
        assert pixels[:, :WIDE].std() > 0.02 and pixels[:, WIDE:].std() > 0.02, target  # something is drawn
        brightness[scheme] = float(np.median(pixels))
    assert brightness["light"] > 0.9 and brightness["dark"] < 0.25
