"""What pages link to outside of docs/ becomes part of the site: MkDocs' hook, so that one link works here and in the repository.

A Markdown page of the repository (results, changelog) is shown as a page, a text of code as a page with its lines, a folder as
the list of its files, and whatever else as the file itself. All lie below `repository/` in the site, where only what is linked to
is copied.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs/"
PREFIX = "repository/"
HOME = "README.md"
"""The page of the repository that the site begins with."""
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r'<picture>\s*<source [^>]*srcset="([^"]+)"[^>]*>\s*<img src="([^"]+)" alt="([^"]*)"[^>]*>\s*</picture>')
CODE = {
    ".py": "python", ".yaml": "yaml", ".toml": "toml", ".json": "json", ".cff": "yaml", ".c": "c", ".h": "c", ".cu": "cuda",
    "": "text",
}  # fmt: skip
"""Suffixes of files that are shown as text, with the language of their lines."""
LARGEST_TEXT = 60_000
FEW = 12
"""Files of a folder that is shown with the text of each."""


def in_site(place: str) -> str:
    """Where a file or folder of the repository stands in the site's sources, by its path from the root."""
    if place == HOME:
        return "index.md"
    if place.startswith(DOCS) and place.endswith((".md", ".png", ".webp", ".gif", ".svg")):
        return place.removeprefix(DOCS)
    path = ROOT / place
    if path.is_dir():
        return f"{PREFIX}{place}/{'README.md' if (path / 'README.md').exists() else 'index.md'}"
    return f"{PREFIX}{place}.md" if is_text(path) else PREFIX + place


def is_text(path: Path) -> bool:
    """Whether a file is shown as a page with its lines."""
    return path.suffix in CODE and path.stat().st_size <= LARGEST_TEXT


def as_page(place: str) -> str:
    """The Markdown of a folder or a text of code."""
    path = ROOT / place
    if not path.is_dir():
        return f"# {path.name}\n\n`{place}`\n\n````{CODE[path.suffix]}\n{path.read_text(encoding='utf-8')}````\n"
    names = sorted(each.name + "/" * each.is_dir() for each in path.iterdir() if each.name != "__pycache__")
    few = len(names) <= FEW
    shown = [
        f"- [{name}]({name})" if name.endswith((".md", "/")) or (few and is_text(path / name)) else f"- `{name}`"
        for name in names
    ]
    return "\n".join([f"# {place}", "", "Files of the repository:", "", *shown, ""])


def source_of(file: File) -> str:
    """The path from the root of what a page of the site was made of."""
    return getattr(file, "repository", "") or (DOCS + file.src_uri)


def target_of(place: str, link: str) -> str | None:
    """The path from the root that a link of the page at `place` names; None for other addresses and anchors."""
    if re.match(r"[a-z]+:|#|/", link):
        return None
    found = os.path.normpath(os.path.join(os.path.dirname(place), unquote(link)))
    if found.startswith("..") or not (ROOT / found).exists():
        return None  # MkDocs says so
    return found


def linked(place: str, text: str) -> set[str]:
    """Paths from the root that a page links to."""
    links = {found[2].partition("#")[0] for found in LINK.finditer(FENCE.sub("", text))}
    return {target for link in links if link for target in [target_of(place, link)] if target}


def on_files(files: Files, config: Any) -> Files:
    """Add what pages link to, what the navigation names, and what those link to in turn."""
    places = {name.removeprefix(PREFIX) for name in named(config.nav) if name.startswith(PREFIX)} | {HOME}
    for file in files.documentation_pages():
        places |= linked(source_of(file), file.content_string)
    done: set[str] = set()
    while places - done:
        place = min(places - done)
        done.add(place)
        uri = in_site(place)
        if files.get_file_from_path(uri) or not (uri.startswith(PREFIX) or place == HOME):
            continue
        file, text = made(uri, place, config)
        files.append(file)
        places |= linked(source_of(file), text)
    return files


def made(uri: str, place: str, config: Any) -> tuple[File, str]:
    """A file of the site, and its Markdown where it is a page."""
    path = ROOT / place
    if path.is_dir() and uri.endswith("README.md"):
        path, place = path / "README.md", f"{place}/README.md"
    if path.suffix == ".md":
        text = path.read_text(encoding="utf-8")
    elif uri.endswith(".md"):
        text = as_page(place)
    else:
        return File.generated(config, uri, abs_src_path=str(path)), ""
    file = File.generated(config, uri, content=text)
    file.repository = f"{place}/index.md" if path.is_dir() else place  # type: ignore[attr-defined]
    return file, text


def named(nav: Any) -> list[str]:
    """All paths of a navigation."""
    if isinstance(nav, str):
        return [nav]
    values = nav.values() if isinstance(nav, dict) else nav or []
    return [path for value in values for path in named(value)]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links as the site has them; a picture for light and dark in the words of the theme."""
    place = source_of(page.file)
    here = PurePosixPath(page.file.src_uri).parent

    def moved(found: re.Match[str]) -> str:
        link, mark, anchor = found[2].partition("#")
        target = target_of(place, link) if link else None
        if target is None:
            return found[0]
        return found[1] + os.path.relpath(in_site(target), here) + mark + anchor + found[3]

    parts = FENCE.split(PICTURE.sub(r"![\3](\2#only-light) ![\3](\1#only-dark)", markdown))
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)
