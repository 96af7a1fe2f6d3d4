"""A self-contained HTML page: text, tables, embedded figures, and plots with their scripts.

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

from agents.runs.sheets.cells import Given, as_cell
from experiments.common.style import dark_of

STATIC = Path(__file__).parent / "static"
KINDS = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg"}


class Page:
    """A page that collects sections; `text` renders it."""

    def __init__(self, title: str) -> None:
        """Create a page without sections."""
        self.title = title
        self._sections: list[tuple[str, str]] = []
        self._scripts: list[str] = []

    def add(self, title: str, body: str, source: str = "") -> None:
        """Add a section with an HTML body; `source` names its origin."""
        note = f'<p class="source">{html.escape(source)}</p>' if source else ""
        self._sections.append((title, note + body))

    def plot(self, figure: Plot) -> str:
        """Register a plot's script and return the HTML element that shows the plot."""
        script, place = components(figure, wrap_script=False)
        self._scripts.append(script)
        return f'<div class="plot">{place}</div>'

    def text(self) -> str:
        """HTML of the whole page."""
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
        """Scripts of the plots: Bokeh's library, a script for each plot, and the colours; empty without plots."""
        if not self._scripts:
            return []
        library = "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)
        several = (library, *self._scripts, _static("colours.js"))  # escaped below, so that none ends its element early
        return [re.sub(r"</(?=script)", r"<\\/", script, flags=re.IGNORECASE) for script in several]


def _static(name: str) -> str:
    """Text of a file of this package that every page embeds."""
    return (STATIC / name).read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    """Text of the content security policy, which allows embedded content and these scripts."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}"


def table(head: Sequence[str], rows: Iterable[Sequence[Given]]) -> str:
    """HTML of a table of texts. Cells with numbers carry the first as the key for sorting."""
    titles = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_data, row))}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def _data(given: Given) -> str:
    """HTML of a table cell."""
    cell = as_cell(given)
    value = f' class="right" data-value="{cell.numbers[0]!r}"' if cell.numbers else ""
    return f"<td{value}>{html.escape(cell.text)}</td>"


def image(path: Path, words: str = "") -> str:
    """HTML of an embedded picture, with its dark variant if the file exists; ValueError if the format is not in KINDS."""
    if path.suffix not in KINDS:
        raise ValueError(f"picture {path}: expected one of {sorted(KINDS)}")
    shown = f'<img alt="{html.escape(words, quote=True)}" src="{_data_of(path)}">'
    if not (dark := dark_of(path)).is_file():
        return shown
    return f'<picture><source media="(prefers-color-scheme: dark)" srcset="{_data_of(dark)}">{shown}</picture>'


def _data_of(path: Path) -> str:
    """The file's content as a `data:` URL."""
    return f"data:{KINDS[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"


def from_markdown(text: str, folder: Path) -> tuple[str, str]:
    """(title, HTML) of a Markdown text. Pictures, relative to `folder`, are embedded; a missing picture is named in the text."""
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
