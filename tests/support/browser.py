"""A headless Chromium for tests of pages: pictures of a page, and how wide pages are at a phone's width. No driver is needed.

A page is shown in a frame of the wanted width, since a window of Chromium is never as narrow as a phone. Frame and page come from
the same server on this machine, so that the one may look into the other.
"""

from __future__ import annotations

import functools
import http.server
import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb",
           "--disable-background-networking", "--disable-component-update")  # fmt: skip
SCHEMES = {"dark": 0, "light": 1}
FRAME = '<iframe src="/{page}" style="border:0;width:{width}px;height:{height}px"></iframe>'
MEASURE = """<body><script>
async function measured(page) {{
  const frame = document.createElement("iframe");
  frame.style = "border:0;width:{width}px;height:800px";
  const loaded = new Promise(done => frame.onload = done);
  frame.src = "/" + page;
  document.body.append(frame);
  await loaded;
  const shown = frame.contentDocument, width = Math.max(shown.documentElement.scrollWidth, shown.body.scrollWidth);
  frame.remove();
  await fetch("/found", {{method: "POST", body: JSON.stringify([page, width])}});
}}
(async () => {{ for (const page of {pages}) await measured(page); }})();
</script>"""
SECONDS_A_PAGE = 30
"""How long a page may take to load on a busy machine."""


def found_browser() -> str:
    """The command of a Chromium; FileNotFoundError with what installs one."""
    for name in NAMES:
        if command := shutil.which(name):
            return command
    raise FileNotFoundError(f"none of {', '.join(NAMES)} is on the PATH: apt-get install chromium")


@contextmanager
def served(folder: Path, told: queue.Queue[Any]) -> Iterator[str]:
    """The address of a server of a folder, on this machine alone; what pages post to it, as JSON, goes into the queue."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def picture(site: Path, page: str, widths: Sequence[int], height: int, scheme: str, target: Path) -> None:
    """A PNG of the top `height` pixels of a page at several widths, side by side."""
    frames = "".join(FRAME.format(page=page, width=width, height=height) for width in widths)
    with _beside(site, f'<body style="margin:0;white-space:nowrap">{frames}', queue.Queue()) as address:
        options = (f"--window-size={sum(widths)},{height}", f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}")
        command = [found_browser(), *OPTIONS, *options, "--virtual-time-budget=4000", f"--screenshot={target}", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]


def widths(site: Path, pages: Sequence[str], width: int) -> dict[str, int]:
    """How wide each page's document is, in a frame of `width` pixels."""
    told: queue.Queue[Any] = queue.Queue()
    found: dict[str, int] = {}
    with _beside(site, MEASURE.format(pages=json.dumps(list(pages)), width=width), told) as address:
        command = [found_browser(), *OPTIONS, "--remote-debugging-port=0", address]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as run:
            try:
                while len(found) < len(pages):
                    page, wide = told.get(timeout=SECONDS_A_PAGE)
                    found[page] = wide
            finally:
                run.terminate()
    return found


@contextmanager
def _beside(site: Path, text: str, told: queue.Queue[Any]) -> Iterator[str]:
    """The address of a page of our own, served with the site's."""
    page = site / "_frame.html"
    page.write_text(f"<!doctype html>{text}", encoding="utf-8")
    try:
        with served(site, told) as address:
            yield f"{address}/{page.name}"
    finally:
        page.unlink()
