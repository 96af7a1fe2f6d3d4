"""The suite: which worker runs which file, and which tests a change concerns."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.both_ends import FOLDERS, place, pytest_xdist_make_scheduler
from tests.support.until import Until

TESTS = Path(__file__).resolve().parent


class Worker:
    """Takes down which tests it is given."""

    def __init__(self, name: str) -> None:
        self.gateway, self.shutting_down = SimpleNamespace(id=name), False
        self.given: list[int] = []

    def send_runtest_some(self, tests: list[int]) -> None:
        self.given += tests

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduler(dist: str) -> Any:
    values = {"dist": dist, "tx": ["2*popen"]}
    config: Any = SimpleNamespace(getvalue=values.get, option=SimpleNamespace(loadscopereorder=True))
    return pytest_xdist_make_scheduler(config, None)


def test_every_folder_has_its_place() -> None:
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py") if path.parent != TESTS}
    assert folders == set(FOLDERS) - {""}
    assert place("tests/graph/test_graph.py") == 0 and place("tests/codegen/cuda/test_codegen_mma.py") == len(FOLDERS) - 1
    assert FOLDERS[place("tests/test_order.py")] == ""


def test_two_workers_begin_at_both_ends() -> None:
    """A file goes to one worker as a whole, and each test is run once."""
    pytest.importorskip("xdist")
    found, workers = scheduler("loadfile"), [Worker("gw0"), Worker("gw1")]
    tests = [f"tests/test_{file}.py::test_{number}" for file in "abcde" for number in range(4 if file == "e" else 3)]
    for worker in workers:
        found.add_node(worker)
        found.add_node_collection(worker, tests)
    found.schedule()
    assert [tests[worker.given[0]].partition("::")[0] for worker in workers] == ["tests/test_a.py", "tests/test_e.py"]
    for worker in (workers[1], *workers):
        for test in list(worker.given):
            found.mark_test_complete(worker, test)
    assert sorted(workers[0].given + workers[1].given) == list(range(len(tests))), "each once"
    assert {tests[test].partition("::")[0][-4] for test in workers[1].given} >= {"e", "d", "c"}


def test_other_ways_to_spread_tests_are_pytest_xdists() -> None:
    assert scheduler("load") is None


ROOT = Path(__file__).resolve().parents[1]
SCRIPT = runpy.run_path(str(ROOT / ".ci" / "affected.py"))
FOLDERS_AFFECTED = sorted(path.name for path in (ROOT / "tests").iterdir() if (path / "__init__.py").exists())
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
    found = SCRIPT["affected"](["docs/design.md", path], FOLDERS_AFFECTED)
    assert found[0] == BESIDE
    assert {f"tests/{name}" for name in within} <= set(found) and not {f"tests/{name}" for name in without} & set(found)


def test_files_of_no_room_concern_all_tests_and_pages_those_beside_the_folders() -> None:
    for path in ("pyproject.toml", "tests/support/until.py", "Makefile"):
        assert SCRIPT["affected"]([path, "agents/strategy.py"], FOLDERS_AFFECTED) == ["tests"]
    assert SCRIPT["affected"](["CHANGELOG.md", ".ci/run"], FOLDERS_AFFECTED) == []
    for path in ("README.md", "docs/design.md", "tests/test_readme.py"):
        assert SCRIPT["affected"]([path], FOLDERS_AFFECTED) == [BESIDE]


def test_every_folder_of_tests_is_of_a_room() -> None:
    rooms = set().union(*SCRIPT["rooms"]())
    assert set(FOLDERS_AFFECTED) - rooms == {"identical", "support"}


def test_what_has_not_begun_in_time_is_skipped() -> None:
    Until(60).pytest_runtest_setup()
    with pytest.raises(pytest.skip.Exception, match="not begun within 0 s"):
        Until(0).pytest_runtest_setup()
