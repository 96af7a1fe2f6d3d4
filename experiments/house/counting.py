"""What is counted of a tree: files, modules and statements of its folders, arrows, circles, tests."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from experiments.house.imports import Arrow, arrows, circles, modules, upward
from experiments.house.sizes import crowded, is_way, long_files, long_functions

SOURCE = ("gensor_gym", "agents", "experiments")
FOLDERS = (*SOURCE, "conf", "tests")
TOO_LARGE = {"folders": crowded, "files": long_files, "functions": long_functions}
"""What of the source is larger than `sizes` says."""


def statements(text: str) -> int:
    """Statements by the parser, those inside others as well; texts that stand alone, such as docstrings, do not count."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    return sum(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in nodes)


def count(root: Path) -> dict[str, Any]:
    """Everything, as JSON."""
    found = arrows(modules(root, SOURCE))
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    against = upward(found, project["tool"]["importlinter"]["contracts"])
    known = circles(found, ("top",)), circles(found, ("top", "lazy")), circles(found, ("top", "lazy", "type"))
    folders = folders_of(root)
    paths = list(modules(root, SOURCE).values())
    return {
        "commit": _run(root, "git", "rev-parse", "--short", "HEAD").strip(),
        "folders": folders,
        "statements": {package: _sum(folders, package, "statements") for package in SOURCE},
        "largest folder": max((folder["modules"], name) for name, folder in folders.items() if name.split("/")[0] in SOURCE),
        "arrows": {package: arrows_of(found, package) for package in SOURCE},
        "upward": [str(arrow) for arrow in against if arrow.kind != "type"],
        "upward, for types alone": [str(arrow) for arrow in against if arrow.kind == "type"],
        "circles": known[0],
        "circles with imports in functions": known[1],
        "circles with imports for types": known[2],
        "circles of rooms": circles([Arrow(room(a.source), room(a.target), a.kind) for a in found], ("top", "lazy")),
        "too large": {what: len(found(paths)) for what, found in TOO_LARGE.items()},
        "tests": {"by default": _tests(root), "slow as well": _tests(root, "-m", "")},
    }


def folders_of(root: Path) -> dict[str, dict[str, int]]:
    """(files, modules, of these ways to commands, statements) that lie in each folder itself, as git knows them."""
    found: dict[str, dict[str, int]] = {}
    for name in filter(None, _run(root, "git", "ls-files", "-z", "--", *FOLDERS).split("\0")):
        folder = found.setdefault(str(Path(name).parent), {"files": 0, "modules": 0, "ways": 0, "statements": 0})
        folder["files"] += 1
        if name.endswith(".py"):
            folder["modules"] += 1
            text = (root / name).read_text(encoding="utf-8")
            folder["ways"] += is_way(text)
            folder["statements"] += statements(text)
    return dict(sorted(found.items()))


def arrows_of(found: list[Arrow], package: str) -> dict[str, int]:
    """Arrows inside a package, those for types alone left out: between modules, and between the rooms that they lie in."""
    inside = [a for a in found if a.kind != "type" and a.source.split(".")[0] == a.target.split(".")[0] == package]
    rooms = {(room(a.source), room(a.target)) for a in inside}
    return {"between modules": len(inside), "between rooms": sum(a != b for a, b in rooms)}


def room(module: str) -> str:
    """Where a module lies, two folders deep at most; a module beside the packages is a room of its own."""
    return ".".join(module.split(".")[:2])


def _sum(folders: dict[str, dict[str, int]], package: str, what: str) -> int:
    """Over a package and all its folders."""
    return sum(folder[what] for name, folder in folders.items() if name.split("/")[0] == package)


def _tests(root: Path, *options: str) -> int:
    """Tests that pytest collects; RuntimeError where it cannot."""
    said = _run(root, sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options)
    numbers = re.findall(r"^(\d+)(?:/\d+)? tests? collected", said, re.MULTILINE)
    if not numbers:
        raise RuntimeError(f"pytest collects no tests: {said.strip()[-1000:]}")
    return int(numbers[-1])


def _run(root: Path, *command: str) -> str:
    """What a command says."""
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
