"""What the project computes stays identical while its files move: kernels, episodes, searches, statistics, what ships.

Every item has a digest in tests/golden/identical.json; `tests/identical/sections.py` says when and how these are taken anew.
"""

from __future__ import annotations

import numpy as np
import pytest

from agents.strategy import CONSTRUCTIONS, RECORDED, strategies_for
from tests.identical import searches, sections
from tests.identical.digests import observed, of, reward, six
from tests.identical.sections import QUICK, SLOW, Section


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
