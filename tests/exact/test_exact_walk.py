"""The traverser as a Markov chain, against sampled walks and against closed forms."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats

from agents.gensor import walk
from agents.gensor.exact_walk import Chain, chain_of, expected_best
from agents.gensor.markov import Markov
from gensor_gym.cost.model import room
from gensor_gym.graph.tables.layout import ROW
from tests.support.graph_walks import graph_of

SHORT = Markov(steps=14)
WALKS = 15_000


def task():  # noqa: ANN201
    return graph_of("gemm(m=4, n=16, k=4)", "h200", "compact")


def sampled(count: int) -> tuple[np.ndarray, np.ndarray]:
    """(last row [N, ROW], seconds of the best program seen [N]) of walks by `agents.gensor.walk`."""
    graph = task()
    tables, options = graph.tables, SHORT.options(SHORT.steps, SHORT.start_temperature)
    seeds = np.random.default_rng(0).integers(0, 2**63, size=count, dtype=np.uint64)
    last, best = np.repeat(graph.initial().row[None], count, axis=0), np.empty(count)
    rows, seconds, space = np.empty((1, ROW), dtype=np.int32), np.empty(1), room(tables.ints)
    for i, seed in enumerate(seeds):
        seconds[0] = np.inf
        walk.walk(last[i], seed, tables.ints, tables.floats, tables.sizes, options, space, rows, seconds, np.zeros((0, 2)))
        best[i] = seconds[0]
    return last, best


def agrees(expected: np.ndarray, counts: np.ndarray) -> bool:
    """Chi-square at 1 in 1000, outcomes expected fewer than 10 times taken together; none where none may be."""
    assert (counts[expected == 0] == 0).all()
    expected = expected * counts.sum()
    rare = expected < 10
    observed = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    kept = wanted > 0
    statistic = ((observed - wanted)[kept] ** 2 / wanted[kept]).sum()
    return bool(statistic < stats.chi2.ppf(0.999, kept.sum() - 1))


@pytest.mark.thorough
def test_sampled_walks_agree_with_the_exact_distributions() -> None:
    graph = task()
    chain = chain_of(graph, SHORT)
    last, best = sampled(WALKS)
    final = chain.final()
    assert final.sum() == pytest.approx(1.0, abs=1e-12)
    number = {row.tobytes(): i for i, row in enumerate(chain.states.rows)}
    counts = np.bincount([number[row.tobytes()] for row in last], minlength=len(final))
    assert agrees(final, counts)
    assert not agrees(np.roll(final, 1) + 1e-9, counts), "the test can tell"
    levels, chances = chain.seen()
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    assert agrees(chances, np.array([(best == level).sum() for level in levels]))
    for count in (1, 4, 32):
        groups = best[: len(best) // count * count].reshape(-1, count).min(axis=1)
        error = groups.std() / np.sqrt(len(groups))
        assert abs(groups.mean() - expected_best(levels, chances, count)) < 5 * error + 1e-12


def test_a_matrix_is_what_the_walk_draws_from() -> None:
    """Rows add up to one; a product of matrices is the distribution where `cache` does not ripen."""
    graph = task()
    steady = dataclasses.replace(SHORT, cache_growth=0.0)
    chain = chain_of(graph, steady)
    now = np.zeros(len(chain.states.rows))
    now[0] = 1.0
    for temperature in chain.temperatures():
        matrix = chain.matrix(float(temperature))
        assert np.allclose(np.asarray(matrix.sum(axis=1)).ravel(), 1.0)
        now = now @ matrix
    assert np.allclose(now, chain.final(), atol=1e-14)
    ripe = chain_of(graph, SHORT)
    assert abs(ripe.matrix(1.0, 5) - ripe.matrix(1.0, 0)).max() > 0.01
    with pytest.raises(ValueError, match="temperature"):
        chain.matrix(0.0)
    with pytest.raises(ValueError, match="backtracking"):
        chain_of(graph, dataclasses.replace(SHORT, backtracking=False))


def test_hitting_times() -> None:
    """Chances grow with steps and end at those of the best program visited; means solve the recursion."""
    chain: Chain = chain_of(task(), SHORT)
    targets = chain.states.optimal
    hit = chain.hitting(targets)
    assert hit[0] == 0.0 and (np.diff(hit) >= 0).all() and 0 < hit[-1] < 1
    assert hit[-1] >= chain.final()[targets].sum()
    times = chain.mean_hitting_times(targets, 1.0)
    matrix = chain.matrix(1.0)
    assert (times[targets] == 0).all() and np.isfinite(times).all()
    assert np.allclose(times[~targets], 1.0 + (matrix @ times)[~targets])
    assert chain.hitting(chain.states.depth == 0)[0] == 1.0


def test_expected_best_is_that_of_order_statistics() -> None:
    seconds, chances = np.array([3.0, 1.0, 2.0]), np.array([0.5, 0.25, 0.25])
    assert expected_best(seconds, chances, 1) == pytest.approx(2.25)
    assert expected_best(seconds, chances, 2) == pytest.approx(1 * (1 - 0.75**2) + 2 * (0.75**2 - 0.25) + 3 * 0.25)
    with pytest.raises(ValueError, match="one draw"):
        expected_best(seconds, chances, 0)
