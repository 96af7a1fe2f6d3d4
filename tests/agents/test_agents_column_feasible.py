"""Feasible choices: those of a legal program are among them, and draws are kept to them."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from agents.columns.choices import Choices  # noqa: E402
from agents.columns.feasible import Feasible  # noqa: E402
from agents.columns.network import ColumnNetwork  # noqa: E402
from agents.columns.policy import Memory, write  # noqa: E402
from gensor_gym.construction import ConstructionGraph  # noqa: E402
from tests.support.thorough import thorough_but  # noqa: E402

LARGE = "conv2d(n=64, c=128, h=28, w=28, k=128, r=3, s=3, padding=1)"
TASKS = [
    ("gemm(m=512, n=384, k=1000)", "h200", "gensor"), (LARGE, "h200", "gensor"), (LARGE, "cascade_lake", "gensor"),
    ("gemm(m=512, n=384, k=1000)", "h200", "extended"), ("gemm(m=512, n=384, k=1000)", "cascade_lake", "extended"),
    ("max_pool2d(n=16, c=64, h=56, w=56, r=2, s=2, stride=2)", "h200", "gensor"),
    ("depthwise_conv2d(n=1, c=32, h=28, w=28, r=3, s=3, padding=1)", "zen5_1c", "extended"),
]  # fmt: skip


def feasible_of(task: tuple[str, str, str]) -> Feasible:
    return Feasible(Choices(ConstructionGraph(*task)), np.random.default_rng(0))


def begun(vectors: np.ndarray, count: int) -> np.ndarray:
    """With the first `count` columns chosen, nothing beyond."""
    found = np.full_like(vectors, -1)
    found[:, :count] = vectors[:, :count]
    return found


def vectors(feasible: Feasible, count: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, feasible.choices.counts, size=(count, len(feasible.choices.counts)))


@pytest.mark.parametrize("task", thorough_but([(task,) for task in TASKS], (TASKS[0],), (TASKS[6],)))
def test_a_legal_program_is_feasible_all_along(task: tuple[str, str, str]) -> None:
    feasible, rng = feasible_of(task), np.random.default_rng(1)
    drawn = vectors(feasible, 40_000, rng)
    knobs = sum(column.is_knob for column in feasible.choices.columns)
    drawn[:20_000, :knobs] = 0  # tensor cores and the like make most draws illegal
    legal = drawn[feasible.choices.graph.fits(feasible.choices.rows(drawn))]
    assert len(legal) > 50
    for k in range(1, drawn.shape[1] + 1):
        assert feasible.is_feasible(begun(legal, k)).mean() > 0.999, k


def test_a_whole_program_is_feasible_if_it_fits() -> None:
    feasible = feasible_of(TASKS[1])
    drawn = vectors(feasible, 5000, np.random.default_rng(2))
    np.testing.assert_array_equal(feasible.is_feasible(drawn), feasible.choices.graph.fits(feasible.choices.rows(drawn)))


def test_open_choices_are_those_that_are_feasible_one_by_one() -> None:
    feasible = feasible_of(TASKS[1])
    drawn = vectors(feasible, 5000, np.random.default_rng(3))
    before = drawn[feasible.choices.graph.fits(feasible.choices.rows(drawn))][:7]
    found = feasible.open_choices(begun(before, 3), 3)
    for row, chosen in zip(found, begun(before, 3), strict=True):
        tried = (np.array([[*chosen[:3], choice, *chosen[4:]]]) for choice in range(feasible.choices.counts[3]))
        each = [feasible.is_feasible(program)[0] for program in tried]
        np.testing.assert_array_equal(row, each)
    assert found.any() and not found.all()


def test_what_is_not_feasible_is_drawn_again_by_its_chances() -> None:
    feasible, count = feasible_of(TASKS[1]), 4000
    last = len(feasible.choices.counts) - 1
    before = next(
        row[None] for row in begun(vectors(feasible, 1000, np.random.default_rng(4)), last)
        if 2 <= feasible.open_choices(row[None], last).sum() <= 40
    )  # fmt: skip
    open_ones, rng = feasible.open_choices(before, last)[0], np.random.default_rng(5)
    chances = rng.dirichlet(np.ones(feasible.choices.counts[last]))
    at = rng.choice(len(chances), size=count, p=chances)
    kept = feasible.kept(np.repeat(before, count, axis=0), last, at, np.repeat(chances[None], count, axis=0))
    np.testing.assert_array_equal(kept[open_ones[at]], at[open_ones[at]])
    assert open_ones[kept].all() and not open_ones[at].all()
    expected = chances * open_ones / (chances * open_ones).sum()
    assert np.abs(np.bincount(kept, minlength=len(chances)) / count - expected).max() < 0.05
    sure = np.zeros_like(chances)
    sure[closed := int(np.flatnonzero(~open_ones)[0])] = 1.0  # no chance is left for those that are feasible
    again = feasible.kept(np.repeat(before, count, axis=0), last, np.full(count, closed), np.repeat(sure[None], count, axis=0))
    assert set(again.tolist()) == set(np.flatnonzero(open_ones).tolist())


def test_a_policy_whose_draws_hardly_ever_fit_writes_programs_all_the_same() -> None:
    torch.manual_seed(0)
    choices, net = Choices(ConstructionGraph(LARGE, "h200", "gensor")), ColumnNetwork(8)
    with torch.no_grad():
        chosen, _, _ = net(choices, np.random.default_rng(0).random((2000, len(choices.counts))))
    assert choices.graph.fits(choices.rows(chosen)).mean() < 0.02
    rows = write(net, choices, 100, Memory(1.0), np.random.default_rng(0))
    assert len(np.unique(rows, axis=0)) == 100 and choices.graph.fits(rows).all()
