"""The order of the tests themselves: which worker runs which files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.both_ends import FOLDERS, place, pytest_xdist_make_scheduler

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
