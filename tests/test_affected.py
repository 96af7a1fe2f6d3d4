"""What CI tests after a change: rooms at or above it, in the order of imports, and what has begun in time."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.support.until import Until

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = runpy.run_path(str(ROOT / ".ci" / "affected.py"))
FOLDERS = sorted(path.name for path in (ROOT / "tests").iterdir() if (path / "__init__.py").exists())
BESIDE = "tests/test_*.py"


@pytest.mark.parametrize(
    ("path", "within", "without"),
    [
        ("gensor_gym/operators/types.py", {"operators", "graph", "codegen", "env", "agents", "experiments"}, set()),
        ("gensor_gym/measure/stats/verdict.py", {"measure", "networks", "env", "experiments"}, {"codegen", "graph"}),
        ("tests/env/test_env.py", {"env", "agents", "experiments"}, {"measure"}),
        ("agents/strategy.py", {"agents", "experiments"}, {"env"}),
        ("conf/compare.yaml", {"experiments"}, {"agents"}),
        ("results/h200/2026-11-27.md", {"experiments"}, {"agents"}),
    ],
)
def test_rooms_at_or_above(path: str, within: set[str], without: set[str]) -> None:
    found = SCRIPT["affected"](["docs/design.md", path], FOLDERS)
    assert found[0] == BESIDE
    assert {f"tests/{name}" for name in within} <= set(found) and not {f"tests/{name}" for name in without} & set(found)


def test_files_of_no_room_concern_all_tests_and_pages_those_beside_the_folders() -> None:
    for path in ("pyproject.toml", "tests/support/where.py", "Makefile"):
        assert SCRIPT["affected"]([path, "agents/strategy.py"], FOLDERS) == ["tests"]
    assert SCRIPT["affected"](["CHANGELOG.md", ".ci/run"], FOLDERS) == []
    for path in ("README.md", "docs/design.md", "tests/test_readme.py"):
        assert SCRIPT["affected"]([path], FOLDERS) == [BESIDE]


def test_every_folder_of_tests_is_of_a_room() -> None:
    rooms = set().union(*SCRIPT["rooms"]())
    assert set(FOLDERS) - rooms == {"identical", "support"}


def test_what_has_not_begun_in_time_is_skipped() -> None:
    Until(60).pytest_runtest_setup()
    with pytest.raises(pytest.skip.Exception, match="not begun within 0 s"):
        Until(0).pytest_runtest_setup()
