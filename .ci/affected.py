"""Folders of tests that a change may concern: `python .ci/affected.py COMMIT`, one a line, of rooms at or above what differs.

Rooms are packages in the order of the contracts in pyproject.toml, which is that of imports: a test of a lower room cannot
see a change above it. Whatever is in no room (settings of the build, shared tests) concerns all.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEEN_BY_NONE = (".ci/", "docs/", "results/", *(f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")))
"""What only default tests look at."""


def rooms() -> list[set[str]]:
    """Rooms from the top to the bottom, several where neither imports the other."""
    inside, outside = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [{room.strip() for room in layer.split("|")} for layer in (*outside["layers"][:-1], *inside["layers"])]


def room_of(path: str) -> str:
    """The room of a file, of a file of tests that of its folder; empty for none."""
    top, _, rest = path.partition("/")
    if top in ("gensor_gym", "tests"):
        return Path(rest.partition("/")[0]).stem
    return {"conf": "experiments"}.get(top, top)


def affected(paths: Iterable[str], folders: Iterable[str]) -> list[str]:
    """Folders of tests for changed files, and the files of tests beside them, which look at everything; `tests` for all."""
    layers, deepest, beside = rooms(), -1, False
    place = {room: depth for depth, layer in enumerate(layers) for room in layer}
    for path in paths:
        if path.startswith(SEEN_BY_NONE):
            continue
        if path.startswith("tests/test_"):
            beside = True
        elif room_of(path) not in place:
            return ["tests"]
        else:
            deepest = max(deepest, place[room_of(path)])
    above = [f"tests/{name}" for name in folders if place.get(name, deepest + 1) <= deepest]
    return ["tests/test_*.py", *above] if above or beside else []


def main() -> int:
    """Print them."""
    line = ["git", "-C", str(ROOT), "diff", "--name-only", sys.argv[1]]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    folders = sorted(path.name for path in (ROOT / "tests").iterdir() if path.is_dir())
    print("\n".join(affected(done.stdout.split("\n")[:-1], folders) if done.returncode == 0 else ["tests"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
