"""Print the tests that a change since a commit may concern, one path per line: `python .ci/affected.py COMMIT`.

Packages are those that the contracts of pyproject.toml list by layers, from the top. A change concerns the tests of all packages
in its own layer and in higher layers, because a lower layer cannot import it. A changed file outside all packages (build
settings, shared tests) concerns all tests.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEFAULT_ALONE = (".ci/", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Beginnings of paths that only default tests read; these run in any case."""
PAGES = ("docs/", "README.md", "tests/test_")
"""Beginnings of paths that only the files directly in tests/ read, and of these files."""


def rooms() -> list[set[str]]:
    """Return the packages of each layer, from top to bottom."""
    inside, outside = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [{room.strip() for room in layer.split("|")} for layer in (*outside["layers"][:-1], *inside["layers"])]


def room_of(path: str) -> str:
    """Return the name of the package that a file belongs to; a test belongs to the package that its folder is named after."""
    top, _, rest = path.partition("/")
    if top in ("gensor_gym", "tests"):
        return Path(rest.partition("/")[0]).stem
    return {"conf": "experiments", "results": "experiments"}.get(top, top)


def affected(paths: Iterable[str], folders: Iterable[str]) -> list[str]:
    """Return the arguments of pytest for changed files.

    They are files directly in tests/ and folders of tests, or `tests` for all tests. `folders` are all folders of tests.
    """
    layers, deepest, pages = rooms(), -1, False
    place = {room: depth for depth, layer in enumerate(layers) for room in layer}
    for path in paths:
        if path.startswith(DEFAULT_ALONE):
            continue
        if path.startswith(PAGES):
            pages = True
        elif room_of(path) not in place:
            return ["tests"]
        else:
            deepest = max(deepest, place[room_of(path)])
    above = [f"tests/{name}" for name in folders if place.get(name, deepest + 1) <= deepest]
    return ["tests/test_*.py", *above] if above or pages else []


def main() -> int:
    """Print the tests that changes since the given commit concern, or all tests if git fails."""
    line = ["git", "-C", str(ROOT), "diff", "--name-only", sys.argv[1]]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    folders = sorted(path.name for path in (ROOT / "tests").iterdir() if path.is_dir())
    print("\n".join(affected(done.stdout.split("\n")[:-1], folders) if done.returncode == 0 else ["tests"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
