"""Rooms, files and functions keep their sizes; kinds of imports and circles are told apart."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.support.import_graph import SOURCE, Arrow, arrows, circles, modules

ROOT = Path(__file__).resolve().parent.parent

FILES = {
    "low/__init__.py": "",
    "low/a.py": "import math\nfrom low import b\nfrom low.deep.c import name\n",
    "low/b.py": "def f():\n    from low.a import g\n    return g\n",
    "low/deep/__init__.py": "from .c import name\n",
    "low/deep/c.py": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from high import top\nelse:\n    import low.b\n",
    "high/__init__.py": "",
    "high/top.py": "import low.a, low.deep\nfrom ..low import b\n\n\ndef f():\n    import low.a\n",
}


def found(folder: Path) -> list[Arrow]:
    """Arrows of the files above."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return arrows(modules(folder, ("low", "high")))


def test_imports_are_found_once_and_by_their_kind(tmp_path: Path) -> None:
    assert list(map(str, found(tmp_path))) == [
        "high.top -> low.a", "high.top -> low.b", "high.top -> low.deep", "low.a -> low.b",
        "low.a -> low.deep.c", "low.b -> low.a (lazy)",
        "low.deep -> low.deep.c", "low.deep.c -> high.top (type)", "low.deep.c -> low.b",
    ]  # fmt: skip


def test_circles_by_kind(tmp_path: Path) -> None:
    known = found(tmp_path)
    assert circles(known, ("top",)) == []
    assert circles(known, ("top", "lazy")) == [["low.a", "low.b", "low.deep.c"]]
    assert circles(known, ("top", "lazy", "type")) == [["high.top", "low.a", "low.b", "low.deep", "low.deep.c"]]


def test_no_room_file_or_function_is_too_large() -> None:
    paths = list(modules(ROOT, SOURCE).values())
    for too_large in (crowded, long_files, long_functions):
        assert too_large(paths) == [], "to be split"


def test_no_text_has_marks_of_an_unfinished_merge() -> None:
    folders = "gensor_gym", "agents", "conf", "experiments", "tests", "docs"
    kinds = ".py", ".md", ".yaml", ".c", ".h"
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.*") if path.suffix in kinds]
    paths += [*ROOT.glob("*.md"), *ROOT.glob("*.toml")]
    marks = tuple(f"{sign * 7} " for sign in "<>|")
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    assert len(texts) > 1000
    assert not [path for path, text in texts.items() if any(line.startswith(marks) for line in text.splitlines())]


def test_what_is_too_large_is_found(tmp_path: Path) -> None:
    for number in range(MOST_MODULES):
        (tmp_path / f"m{number}.py").write_text("def f():\n" + "    f()\n" * (38 + number))
    paths = sorted(tmp_path.iterdir())
    assert crowded(paths) == []
    assert len(found := long_functions(paths)) == 13 and found[0].endswith("m10.py:1 f: 49 lines")
    (tmp_path / "more.py").write_text("f()\n" * 401)
    paths = sorted(tmp_path.iterdir())
    assert crowded(paths) == [f"{tmp_path}: 16 modules"] and long_files(paths) == [f"{tmp_path / 'more.py'}: 401 lines"]


MOST_MODULES, MOST_LINES, MOST_LINES_OF_FUNCTION = 15, 400, 40


def crowded(paths: Iterable[Path]) -> list[str]:
    """Folders of more than MOST_MODULES modules."""
    count = Counter(str(path.parent) for path in paths)
    return [f"{folder}: {number} modules" for folder, number in sorted(count.items()) if number > MOST_MODULES]


def long_files(paths: Iterable[Path]) -> list[str]:
    """Files of more than MOST_LINES lines."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    return [f"{path}: {number} lines" for path, number in lines.items() if number > MOST_LINES]


def long_functions(paths: Iterable[Path]) -> list[str]:
    """Functions of more than MOST_LINES_OF_FUNCTION lines, from `def` to the last; decorators do not count."""
    return [
        f"{path}:{node.lineno} {node.name}: {lines} lines"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MOST_LINES_OF_FUNCTION
    ]
