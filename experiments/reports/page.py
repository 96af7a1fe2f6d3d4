"""A self-contained HTML page: text, tables, figures as data, plots with their script.

All content from files is escaped. The page's policy (`Content-Security-Policy`) allows only its own scripts, by their digests,
and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from bokeh.embed import components
from bokeh.models import Plot
from bokeh.resources import Resources
from markdown_it import MarkdownIt

from experiments.common.style import dark_of
from experiments.sheets.cells import Given, as_cell

STATIC = Path(__file__).parent / "static"
KINDS = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg"}


class Page:
    """Sections in order; `text` puts them together."""

    def __init__(self, title: str) -> None:
        """No section yet."""
        self.title = title
        self._sections: list[tuple[str, str]] = []
        self._scripts: list[str] = []

    def add(self, title: str, body: str, source: str = "") -> None:
        """A section of HTML; `source` says where it comes from."""
        note = f'<p class="source">{html.escape(source)}</p>' if source else ""
        self._sections.append((title, note + body))

    def plot(self, figure: Plot) -> str:
        """HTML for the place of a plot of this page."""
        script, place = components(figure, wrap_script=False)
        self._scripts.append(script)
        return f'<div class="plot">{place}</div>'

    def text(self) -> str:
        """The whole page."""
        name = html.escape(self.title)
        links = "".join(f'<a href="#s{i}">{html.escape(title)}</a>' for i, (title, _) in enumerate(self._sections))
        parts = "".join(
            f'<section id="s{i}"><h2>{html.escape(title)}</h2>{body}</section>'
            for i, (title, body) in enumerate(self._sections)
        )
        scripts = [*self._plotting(), _static("sorting.js")]
        head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">'
        head += f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{name}</title>'
        return (
            f'<!doctype html><html lang="en"><head>{head}<style>{_static("page.css")}</style></head>'
            f"<body><nav><strong>{name}</strong>{links}</nav><main><h1>{name}</h1>{parts}</main>"
            + "".join(f"<script>{script}</script>" for script in scripts)
            + "</body></html>\n"
        )

    def _plotting(self) -> list[str]:
        """Scripts of the plots, where there are any: Bokeh whole, then a line for each."""
        if not self._scripts:
            return []
        library = "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)
        return [_closed(script) for script in (library, *self._scripts, _static("colours.js"))]


def _static(name: str) -> str:
    """A file that every page has in it."""
    return (STATIC / name).read_text(encoding="utf-8")


def _closed(script: str) -> str:
    """A script that does not end its element early."""
    return re.sub(r"</(?=script)", r"<\\/", script, flags=re.IGNORECASE)


def _policy(scripts: Iterable[str]) -> str:
    """The page's policy: its own content and these scripts."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}"


def table(head: Sequence[str], rows: Iterable[Sequence[Given]]) -> str:
    """A table of texts; cells with numbers are sorted by these."""
    titles = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_data, row))}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def _data(given: Given) -> str:
    """A cell."""
    cell = as_cell(given)
    value = f' class="right" data-value="{cell.numbers[0]!r}"' if cell.numbers else ""
    return f"<td{value}>{html.escape(cell.text)}</td>"


def image(path: Path, words: str = "") -> str:
    """A picture as data, on a dark page the one for it where there is one; ValueError if its kind is not one of KINDS."""
    if path.suffix not in KINDS:
        raise ValueError(f"picture {path}: expected one of {sorted(KINDS)}")
    shown = f'<img alt="{html.escape(words, quote=True)}" src="{_data_of(path)}">'
    if not (dark := dark_of(path)).is_file():
        return shown
    return f'<picture><source media="(prefers-color-scheme: dark)" srcset="{_data_of(dark)}">{shown}</picture>'


def _data_of(path: Path) -> str:
    """A file as an address that holds it."""
    return f"data:{KINDS[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"


def from_markdown(text: str, folder: Path) -> tuple[str, str]:
    """(title, HTML) of a Markdown text whose pictures lie relative to `folder`; those that are not there are named instead."""
    title, _, rest = text.partition("\n")
    if not title.startswith("# "):
        title, rest = "", text
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(rest)

    def embedded(match: re.Match[str]) -> str:
        path, words = folder / html.unescape(match["path"]), html.unescape(match["words"])
        if path.is_file() and path.suffix in KINDS:
            return image(path, words)
        return f"<em>[{html.escape(words)}: {html.escape(str(path))}]</em>"

    body = re.sub(r'<img src="(?P<path>[^"]*)" alt="(?P<words>[^"]*)"[^>]*>', embedded, body)
    body = body.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")
    return title.removeprefix("# ").strip(), body
