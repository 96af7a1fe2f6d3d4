"""Digests: what a refactoring must not change, and long traces of seeded searches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents import optimize, tune
from agents.optimizer import run
from agents.recorded.tune import get_strategy_of_spaces
from agents.strategy import CONSTRUCTIONS, RECORDED, strategies_for
from gensor_gym import load_space
from gensor_gym.measure.session import Budget, TraceRow
from gensor_gym.spaces import TuningSession
from tests.identical import searches, sections
from tests.identical.digests import observed, of, reward, six
from tests.identical.sections import QUICK, SLOW, Section
from tests.support.tuning_files import CACHE, T4, random_cache


@pytest.mark.parametrize("name", QUICK)
def test_every_item_is_as_recorded(name: str, update_golden: bool) -> None:
    compare(name, QUICK[name], update_golden)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_every_item_of_many_is_as_recorded(name: str, update_golden: bool) -> None:
    compare(name, SLOW[name], update_golden)


def compare(name: str, section: Section, update: bool) -> None:
    """A section against its digests; recorded where that is asked for."""
    if name in ("policies", "searches", "more searches"):
        pytest.importorskip("sb3_contrib")
    found = section()
    if update:
        sections.record(name, found)
        pytest.skip("recorded")
    wrong = sections.differing(sections.recorded().get(name, {}), found)
    assert not wrong, f"{len(wrong)} of {len(found)} items of {name!r} differ: " + "; ".join(wrong[:20])


def test_all_sections_are_recorded_and_large_enough() -> None:
    known = sections.recorded()
    assert list(known) == [*QUICK, *SLOW]
    least = {"goldens": 10, "tables": 50, "certificates": 2, "policies": 5, "kernels": 240, "episodes": 16}
    assert {name: len(known[name]) for name in least if len(known[name]) < least[name]} == {}


def test_every_strategy_is_searched_with() -> None:
    known, learned = sections.recorded(), set(searches.NEEDS_A_POLICY)
    assert {name.split(" on ")[0] for name in known["searches"]} == set(strategies_for(CONSTRUCTIONS)) - learned
    assert set(known["searches of recorded spaces"]) == set(strategies_for(RECORDED)) - learned


def test_last_digits_do_not_count_and_others_do() -> None:
    values = np.array([0.25, -3.0, 0.1])
    assert of(observed(values)) == of(observed(values * (1 + 1e-12))) != of(observed(values + 1e-3))
    assert of(observed({"a": values})) != of(observed({"b": values})) != of(observed(values))
    assert six(1.2345678e-5) == six(1.2345678e-5 * (1 + 1e-9)) != six(1.23467e-5)
    assert str(reward(-1e-9)) == "0.0"


def test_a_mismatch_names_the_item() -> None:
    said = sections.differing({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "5", "d": "4"})
    assert said == ["b: 2 -> 5", "c: 3 -> not there now", "d: not there before -> 4"]


SHIPPED = Path(__file__).resolve().parents[1] / "gensor_gym/data/spaces/benchmark_hub/convolution/A100.json.gz"
GEMM, ROWS = ("gemm(m=256, n=128, k=128)", "h200"), ("reduce_sum(m=2048, k=768)", "cascade_lake")
"""Tasks of the model."""
SMALL = ('elementwise(name="exp", shape=(192, 128, 128))', "zen5_1c")
"""In space compact 34 programs: exhausted."""

CONSTRUCTIONS_TRACES: dict[str, tuple[tuple[str, str], str, int, dict[str, Any]]] = {
    "annealing gemm": (GEMM, "annealing", 250, {}),
    "annealing reduce": (ROWS, "annealing", 250, {"space": "gensor", "reach": 2, "steps": 12, "hot": 1.0, "cold": 0.1}),
    "annealing exhausts": (SMALL, "annealing", 100, {"space": "compact", "starts": 3, "patience": 8}),
    "greedy gemm": (GEMM, "greedy", 80, {}),
    "greedy reduce": (ROWS, "greedy", 80, {"space": "gensor"}),
    "beam gemm": (GEMM, "beam", 40, {"width": 3, "patience": 5}),
    "local_search gemm": (GEMM, "local_search", 80, {}),
    "random_walk reduce": (ROWS, "random_walk", 40, {}),
    "exhaustive exp": (SMALL, "exhaustive", 30, {}),
}
RECORDED_TRACES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "annealing": ("annealing", 400, {}),
    "annealing restarts": ("annealing", 300, {"starts": 3, "steps": 7, "reach": 4, "hot": 2.0, "cold": 0.5, "patience": 9}),
    "local_search": ("local_search", 300, {}),
    "random_walk": ("random_walk", 100, {}),
    "exhaustive": ("exhaustive", 50, {}),
}
SEEDS = (0, 7)
EXPECTED = json.loads((Path(__file__).parent / "golden" / "traces.json").read_text(encoding="utf-8"))


def digest(trace: tuple[TraceRow, ...] | list[TraceRow]) -> str:
    """Schedules in the order of their trials, with seconds and status."""
    return f"{len(trace)} {of([[row.schedule, six(row.seconds), row.status] for row in trace])}"


@pytest.mark.parametrize("name", CONSTRUCTIONS_TRACES)
def test_traces_of_constructions(name: str) -> None:
    (operator, machine), strategy, trials, given = CONSTRUCTIONS_TRACES[name]
    found = [digest(optimize(operator, machine, strategy, trials, seed, "analytic", **given).trace) for seed in SEEDS]
    assert found == EXPECTED[f"constructions: {name}"]


@pytest.mark.parametrize("name", RECORDED_TRACES)
def test_traces_of_recorded_spaces(name: str) -> None:
    strategy, trials, given = RECORDED_TRACES[name]
    found = [digest(tune(SHIPPED, strategy, trials, seed=seed, **given).trace) for seed in SEEDS]
    assert found == EXPECTED[f"recorded: {name}"]


@pytest.mark.parametrize("name", ["annealing", "local_search", "random_walk", "exhaustive"])
def test_searches_of_small_recorded_spaces_end(name: str, tmp_path: Path) -> None:
    """Without a limit on trials: where all is known to the search, it ends."""
    (tmp_path / "random.json").write_text(json.dumps(random_cache(1, 0.4)))
    found, given = [], {"patience": 5} if name != "exhaustive" else {}
    for path in (CACHE, T4, tmp_path / "random.json"):
        session = TuningSession(load_space(path), Budget())
        run(get_strategy_of_spaces(name, **given), session, 3)
        found.append(digest(session.trace))
    assert found == EXPECTED[f"small: {name}"]
