"""Find training runs, summaries and pages in folders of results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.policies.card import CARD
from gensor_gym.foreign import read_json

SKIPPED = {".git", ".hydra", "wandb", "env", "site-packages", "node_modules"}
"""Names of folders that contain no results."""
SUMMARY = "summary.json"


@dataclass(frozen=True)
class Gathered:
    """Results found: folders of training runs, summaries of comparisons and studies by folder, and paths of Markdown pages."""

    trained: tuple[Path, ...]
    comparisons: dict[Path, dict[str, Any]]
    studies: dict[Path, dict[str, Any]]
    pages: tuple[Path, ...]


def gather(folders: Sequence[Path]) -> Gathered:
    """Find all results, sorted by path. ValueError if a folder is missing, a summary is unreadable, or nothing is found."""
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"folder {folder}: there is none; name folders of results, as outputs or results")
    files = sorted({path for folder in folders for path in walk(folder)})
    trained = tuple(path.parent for path in files if path.name == CARD and path.with_name("curve.jsonl").is_file())
    summaries = {path.parent: read_json(path, finite=False) for path in files if path.name == SUMMARY}
    pages = tuple(path for path in files if path.suffix == ".md")
    if not trained and not pages and not summaries:
        names = ", ".join(map(str, folders))
        raise ValueError(f"no results below {names}: expected card.json with curve.jsonl, summary.json, or Markdown pages")
    compared = {folder: found for folder, found in summaries.items() if isinstance(found.get("rows"), list)}
    studies = {folder: found for folder, found in summaries.items() if folder not in compared and "checkpoints" in found}
    return Gathered(trained, compared, studies, pages)


def walk(folder: Path) -> list[Path]:
    """Paths of the files below a folder that may be results; links to folders are not followed."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            found += walk(path) if path.name not in SKIPPED and not path.is_symlink() else []
        elif path.name in (CARD, SUMMARY) or path.suffix == ".md":
            found.append(path)
    return found
