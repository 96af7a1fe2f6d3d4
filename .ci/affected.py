"""Print the tests that a change since a commit may concern, one path a line: `python .ci/affected.py COMMIT`.

These are the folders of rooms at or above what differs. Rooms are packages in the order of the contracts in pyproject.toml,
which is that of imports: a test of a lower room cannot see a change above it. A file of no room (settings of the build,
shared tests) concerns all tests.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEFAULT_ALONE = (".ci/", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""What default tests alone look at."""
PAGES = ("docs/", "README.md", "tests/test_")
"""What the files of tests beside the folders look at, and these files."""


def rooms() -> list[set[str]]:
    """Return the rooms of each layer, from the top to the bottom."""
    inside, outside = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [{room.strip() for room in layer.split("|")} for layer in (*outside["layers"][:-1], *inside["layers"])]


def room_of(path: str) -> str:
    """Return the room of a file, which for a test is that of its folder."""
    top, _, rest = path.partition("/")
    if top in ("gensor_gym", "tests"):
        return Path(rest.partition("/")[0]).stem
    return {"conf": "experiments", "results": "experiments"}.get(top, top)


def affected(paths: Iterable[str], folders: Iterable[str]) -> list[str]:
    """Return what pytest runs for changed files: all files directly in tests/, and folders; `tests` for everything."""
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
    """Print them."""
    line = ["git", "-C", str(ROOT), "diff", "--name-only", sys.argv[1]]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    folders = sorted(path.name for path in (ROOT / "tests").iterdir() if path.is_dir())
    print("\n".join(affected(done.stdout.split("\n")[:-1], folders) if done.returncode == 0 else ["tests"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
