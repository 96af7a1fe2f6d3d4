"""Programs of matrix products with constant weights that searches rank beside those of walks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from agents.gensor.markov import Markov
from agents.gensor.products import filled_products, is_weighted
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import SPATIAL_SLOTS
from gensor_gym.hardware import get
from gensor_gym.measure.records.verified import verified
from gensor_gym.operators.text import parse
from tests.support.c_cases import machine

DOWN, ALONG, INNER = SPATIAL_SLOTS - 2, SPATIAL_SLOTS - 1, SPATIAL_SLOTS
FEW = Markov(walkers=4, steps=8, refiners=0, descents=1)


def graph(text: str, lanes: int = 16) -> ConstructionGraph:
    """The task of a product, on two cores."""
    return ConstructionGraph(parse(text), machine(lanes), "extended")


@pytest.mark.parametrize(("text", "wanted"), [
    ("frozen gemm(m=8, n=64, k=8)", True), ("frozen gemm(m=8, n=64, k=8)+bias+gelu", True), ("gemm(m=8, n=64, k=8)", False),
    ('frozen gemm(m=8, n=64, k=8, dtype="int8")', False), ("frozen conv2d(n=1, c=8, h=8, w=8, k=64, r=1, s=1)", False),
    ("batched_gemm(b=2, m=8, n=64, k=8)", False), ("gemv(m=8, k=8)", False),
])  # fmt: skip
def test_only_products_with_constant_weights_are_meant(text: str, wanted: bool) -> None:
    assert is_weighted(graph(text)) == wanted
    assert not is_weighted(ConstructionGraph(parse(text), get("h100"), "extended"))


@pytest.mark.parametrize(("rows", "columns", "lanes"), [(128, 2304, 16), (49, 384, 16), (100, 200, 8), (14, 96, 16)])
def test_tiles_fill_the_registers_and_two_cores_have_a_share(rows: int, columns: int, lanes: int) -> None:
    task = graph(f"frozen gemm(m={rows}, n={columns}, k=64)", lanes)
    found = [Schedule(row) for row in filled_products(task)]
    assert len(found) >= 8 and all(task.is_legal(one) for one in found)
    shares, registers = set(), task.hardware.memory[0].capacity // (4 * lanes)
    for one in found:
        height, width = (int(one.tile[0, slot]) for slot in (DOWN, ALONG))
        assert 12 <= height * width // lanes <= registers - width // lanes - 1 and width % lanes == 0
        assert one.tile[-1, INNER] >= 64 and one.knob("pack_b") == 1, "the reduction is whole, and weights are packed"
        parts = math.ceil(rows / one.tile[-1, DOWN]), math.ceil(columns / one.tile[-1, ALONG])
        assert parts in ((1, 1), (1, 2), (2, 1)), "each core has one task"
        shares.add(parts)
    assert (1, 1) in shares and len(shares) > 1


def test_products_without_such_tiles_have_none() -> None:
    """Of one row; and with weights whose columns are not adjacent, so that lanes run along the reduction."""
    for text in ("frozen gemm(m=1, n=64, k=8)", 'frozen gemm(m=8, n=64, k=8, weights="nk")', "frozen gemm(m=8, n=4, k=8)"):
        assert len(filled_products(graph(text))) == 0
        assert FEW.construct(graph(text), np.random.default_rng(0)).schedules


def test_a_search_ranks_them_with_its_walks() -> None:
    task = graph("frozen gemm(m=128, n=2304, k=768)+bias")
    best = task.latencies(filled_products(task)).min()
    first = FEW.construct(task, np.random.default_rng(0))
    assert task.latency(first.schedules[0]) <= best
    walked = FEW.construct(graph("gemm(m=128, n=2304, k=768)+bias"), np.random.default_rng(0))
    assert task.latency(walked.schedules[0]) > 1.1 * best, "short walks alone do not reach them"


def test_they_are_right() -> None:
    task = graph("frozen gemm(m=29, n=100, k=37)+bias+relu")
    found = filled_products(task)
    for row in found[:: max(1, len(found) // 6)]:
        assert verified(task.operator, Schedule(row), task.hardware)
