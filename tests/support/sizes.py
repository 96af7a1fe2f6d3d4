"""How large rooms, files and functions may be, and which are larger."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

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
