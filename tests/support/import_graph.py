"""The graph of imports between the project's own modules, read from the source by `ast`; nothing is run.

An import is `top` (run when the module is), `lazy` (inside a function) or `type` (for annotations alone, under
`if TYPE_CHECKING`). Modules named in text, as registries of strategies do, are not observed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = ("gensor_gym", "agents", "experiments")
KINDS = ("top", "lazy", "type")


@dataclass(frozen=True, order=True)
class Arrow:
    """A module that imports another."""

    source: str
    target: str
    kind: str
    """One of KINDS; an import that a module makes twice counts as the first of these."""

    def __str__(self) -> str:
        """As it is listed."""
        return f"{self.source} -> {self.target}" + ("" if self.kind == "top" else f" ({self.kind})")


def modules(root: Path, packages: Iterable[str]) -> dict[str, Path]:
    """Files by dotted name; a package is the name of its folder."""
    found = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def arrows(files: Mapping[str, Path]) -> list[Arrow]:
    """All imports between modules, each pair once."""
    found: dict[tuple[str, str], int] = {}
    for name, path in files.items():
        inside = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for each in imports(path.read_text(encoding="utf-8"), inside):
            target = next((module for module in (each.name, each.module) if module in files), name)
            if target != name:
                rank = KINDS.index(each.kind)
                found[name, target] = min(rank, found.get((name, target), rank))
    return sorted(Arrow(source, target, KINDS[rank]) for (source, target), rank in found.items())


@dataclass(frozen=True)
class Import:
    """One name that a module imports."""

    name: str
    """In full: `from a import b` imports a.b."""
    module: str
    """The module that is named for it: a."""
    line: int
    kind: str
    """One of KINDS."""


@cache
def imports(text: str, inside: str) -> list[Import]:
    """What the text of a module imports, in order; `inside` is the package that it stands in."""
    return list(_imports(text, inside))


def _imports(text: str, inside: str) -> Iterator[Import]:
    for node, kind in _statements(ast.parse(text), "top"):
        for alias in node.names:
            if isinstance(node, ast.Import):
                yield Import(alias.name, alias.name, node.lineno, kind)
            else:
                above = inside.split(".")[: len(inside.split(".")) - node.level + 1] if node.level else []
                module = ".".join([*above, *filter(None, [node.module])])
                yield Import(f"{module}.{alias.name}", module, node.lineno, kind)


def _statements(node: ast.AST, kind: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """Statements that import, with the kind that they are of."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, kind
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            for statement in child.body:
                yield from ((each, "type") for each, _ in _statements(ast.Module([statement], []), kind))
            yield from _statements(ast.Module(child.orelse, []), kind)
        else:
            yield from _statements(child, "lazy" if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else kind)


def circles(found: Iterable[Arrow], kinds: Iterable[str]) -> list[list[str]]:
    """Modules that reach each other by imports of these kinds, a list for each set of them, in order."""
    wanted = set(kinds)
    after: dict[str, set[str]] = {}
    for arrow in found:
        if arrow.kind in wanted:
            after.setdefault(arrow.source, set()).add(arrow.target)
    reach = {name: _reached(name, after) for name in after}
    together = {tuple(sorted({name, *(other for other in reach[name] if name in reach.get(other, set()))})) for name in reach}
    return sorted(list(names) for names in together if len(names) > 1)


def _reached(name: str, after: Mapping[str, set[str]]) -> set[str]:
    """Modules that one arrow or more lead to."""
    reached: set[str] = set()
    left = list(after[name])
    while left:
        if (one := left.pop()) not in reached:
            reached.add(one)
            left += after.get(one, ())
    return reached


def room(module: str) -> str:
    """Where a module lies, two folders deep at most; a module beside the packages is a room of its own."""
    return ".".join(module.split(".")[:2])
