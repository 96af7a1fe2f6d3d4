"""One HTML page that holds all it shows: text, tables, and figures as data."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from pathlib import Path

from markdown_it import MarkdownIt

STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #f4f4f2; color: #222; font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
nav { position: fixed; top: 0; left: 0; bottom: 0; width: 15rem; padding: 1.2rem; overflow: auto; background: #fff;
  border-right: 1px solid #ddd; box-sizing: border-box; font-size: 13px; }
nav a { display: block; padding: .15rem 0; color: #005a8c; text-decoration: none; overflow-wrap: anywhere; }
nav a:hover { text-decoration: underline; }
main { margin-left: 15rem; padding: 1rem 2rem 4rem; max-width: 70rem; }
section { background: #fff; border: 1px solid #ddd; border-radius: 6px; padding: .6rem 1.6rem 1.2rem; margin: 1.2rem 0; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; } h3 { font-size: 1.05rem; }
.source { color: #777; font-size: 12px; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; margin: .8rem 0; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #e4e4e4; text-align: left; vertical-align: top; }
th { background: #fafafa; position: sticky; top: 0; }
td[style*=right], th[style*=right] { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; height: auto; }
code { background: #f3f3f3; padding: 0 .2em; font-size: 92%; }
@media (max-width: 60rem) { nav { position: static; width: auto; border: 0; } main { margin: 0; padding: .5rem; } }
"""
KINDS = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg"}


class Page:
    """Sections in order; `text` puts them together."""

    def __init__(self, title: str) -> None:
        """No section yet."""
        self.title = title
        self._sections: list[tuple[str, str]] = []

    def add(self, title: str, body: str, source: str = "") -> None:
        """A section of HTML; `source` says where it comes from."""
        note = f'<p class="source">{html.escape(source)}</p>' if source else ""
        self._sections.append((title, note + body))

    def text(self) -> str:
        """The whole page."""
        name = html.escape(self.title)
        links = "".join(f'<a href="#s{i}">{html.escape(title)}</a>' for i, (title, _) in enumerate(self._sections))
        parts = "".join(
            f'<section id="s{i}"><h2>{html.escape(title)}</h2>{body}</section>'
            for i, (title, body) in enumerate(self._sections)
        )
        head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{name}</title>'
        return (
            f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head>'
            f"<body><nav><strong>{name}</strong>{links}</nav><main><h1>{name}</h1>{parts}</main></body></html>\n"
        )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of plain text."""
    line = lambda cells, tag: "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"  # noqa: E731
    body = "".join(line(row, "td") for row in rows)
    return f'<div class="wide"><table><thead>{line(head, "th")}</thead><tbody>{body}</tbody></table></div>'


def image(path: Path, words: str = "") -> str:
    """A picture as data; ValueError where its kind is not one of KINDS."""
    if path.suffix not in KINDS:
        raise ValueError(f"picture {path}: expected one of {sorted(KINDS)}")
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{html.escape(words, quote=True)}" src="data:{KINDS[path.suffix]};base64,{data}">'


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
