"""What the model says of blocks that take equal shares of all steps, `persistent=2`."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.gpu.shares import addition, parts_of_tiles, shares_steps, sharing
from gensor_gym.graph.schedule import Schedule
from gensor_gym.operators.types import Operator
from tests.support.cuda_schedules import make_schedule
from tests.support.graph_walks import moved


def schedule(op: Operator, **knobs: int) -> Schedule:
    """One consumer of 64 x 128, five stages."""
    return make_schedule(op, [64, 128, 16], [64, 128, 64], None, tensor_core=2, stages=5, **knobs)


def test_parts_are_those_of_the_cut_line() -> None:
    """Counted one by one: no fewer than the model says, and as many where no cut falls between two tiles."""
    rng = np.random.default_rng(0)
    for tiles, steps, places in rng.integers((1, 2, 1), (300, 60, 200), (400, 3)).tolist():
        shares = min(places, tiles * steps)
        cuts = {share * tiles * steps // shares for share in range(shares + 1)}
        ends = sorted(cuts | {tile * steps for tile in range(tiles + 1)})
        runs = zip(ends, ends[1:], strict=False)
        parts = sum(last - first < steps for first, last in runs)
        between = sum(cut % steps == 0 for cut in cuts) - 2  # the two ends of the line
        most = parts_of_tiles(tiles, shares)
        assert parts <= most
        if between == 0:
            assert most - parts <= 2


def test_few_tiles_are_faster_shared_out() -> None:
    """48 tiles of 64 steps on 132 multiprocessors, against every split; where tiles fill them, whole ones are faster."""
    few, many = operators.gemm(384, 1024, 4096, dtype="bfloat16"), operators.gemm(4096, 4224, 1024, dtype="bfloat16")
    graph = ConstructionGraph(few, "h100", space="extended")
    whole = [graph.latency(schedule(few, persistent=stays, split_k=parts)) for stays in (0, 1) for parts in (1, 2, 4, 8)]
    assert graph.latency(schedule(few, persistent=2)) < min(whole)
    graph = ConstructionGraph(many, "h100", space="extended")
    assert graph.latency(schedule(many, persistent=2)) == graph.latency(schedule(many, persistent=1))  # 16 tiles a block
    odd = operators.gemm(4096, 4224 + 128, 1024, dtype="bfloat16")
    graph = ConstructionGraph(odd, "h100", space="extended")
    assert graph.latency(schedule(odd, persistent=2)) < 1.2 * graph.latency(schedule(odd, persistent=1))


@pytest.mark.parametrize(("cluster", "shares"), [(1, 132), (2, 132)])
def test_shares_are_whole_clusters(cluster: int, shares: int) -> None:
    """As many as live at a time, each with a step at least; what they leave is written and read once, 4 bytes a sum."""
    op = operators.gemm(384, 1024, 4096, dtype="bfloat16")
    graph = ConstructionGraph(op, "h100", space="extended")
    row, tables = schedule(op, persistent=2, cluster=cluster).row.copy(), graph.tables
    assert shares_steps(row, 48, 64, 132)
    assert sharing(row, 48, 64, 132) == shares and sharing(row, 2, 3, 132) == 6
    assert not shares_steps(row, 264, 64, 132) and not shares_steps(row, 48, 1, 132)
    waits = 3 * graph.hardware.memory[-2].latency
    moved = 2 * (48 + 132) * 64 * 128 * 4 / graph.hardware.memory[-2].bandwidth
    assert addition(row, 48, 132, tables.ints, tables.floats) == pytest.approx(moved + waits)


def test_shares_and_a_split_do_not_go_together() -> None:
    """Neither move is legal in a program that has the other."""
    op = operators.gemm(384, 1024, 4096, dtype="bfloat16")
    graph = ConstructionGraph(op, "h100", space="extended")
    assert graph.is_legal(schedule(op, persistent=2)) and graph.is_legal(schedule(op, persistent=1, split_k=2))
    assert not graph.is_legal(schedule(op, persistent=2, split_k=2))
    shares, split = schedule(op, persistent=2), schedule(op, persistent=1, split_k=2)
    assert moved(graph, shares, "raise[split_k]") is None and moved(graph, split, "raise[persistent]") is None
