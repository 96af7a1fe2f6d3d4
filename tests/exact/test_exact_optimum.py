"""Certified optima: against brute force by the oracle, against enumeration, and the floor against random completions."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from agents.exact.check_certificates import check
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.gpu.gpu import _waves
from gensor_gym.exact import Certificate, append_certificate, certify, read_certificates
from gensor_gym.exact.floor import floor_seconds, least_cycles, most_padding
from gensor_gym.exact.optimum import branch_and_bound, enumerated
from gensor_gym.exact.reduction import reduction_tiles
from gensor_gym.exact.sampling import sample_evenly
from gensor_gym.graph.enumeration import count_schedules
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.resources import CODE_LIMIT_GPU
from gensor_gym.graph.tables.layout import KNOB, LEVEL, MAX_AXES, SPATIAL_SLOTS, TENSOR_CORE, TILE, UNROLL, VTHREAD
from gensor_gym.graph.tables.tables import UNITS
from tests.support.graph_walks import OPERATORS, graph_of
from tests.support.oracle import Oracle
from tests.support.thorough import thorough_but

TINY = [
    ("gemm(m=3, n=4, k=4)", "h200", "gensor"),
    ("gemv(m=6, k=5)", "h200", "gensor"),
    ("max_pool2d(n=1, c=2, h=4, w=4, r=2, s=2, stride=2, padding=0)", "t4", "gensor"),
    ("reduce_sum(m=40, k=300)", "h200", "compact"),
]
SMALL = [
    ("gemm(m=24, n=33, k=20)", "h200", "gensor"),
    ("gemm(m=33, n=16, k=24)+bias+relu", "t4", "gensor"),
    ('gemm(m=16, n=24, k=12, dtype="int8")', "h200", "gensor"),
    ("batched_gemm(b=3, m=8, n=10, k=12)", "h200", "gensor_no_vthread"),
    ("gemv(m=100, k=333)", "h200", "gensor"),
    ("reduce_sum(m=256, k=100)", "t4", "gensor"),
    ("conv2d(n=1, c=4, h=6, w=6, k=8, r=3, s=3, padding=1)", "h200", "gensor_no_vthread"),
    ("conv2d(n=2, c=3, h=7, w=9, k=6, r=3, s=2, stride=2)", "h200", "gensor_no_vthread"),
    ("depthwise_conv2d(n=2, c=6, h=9, w=8, r=3, s=3, stride=2, padding=1)", "h200", "gensor"),
    ("depthwise_conv2d(n=1, c=6, h=15, w=15, r=3, s=3, stride=2, padding=1)", "h200", "gensor"),
    ("avg_pool2d(n=2, c=5, h=9, w=9, r=3, s=3, stride=2, padding=1)", "h200", "gensor"),
    ('elementwise("add", 30, 50)', "h200", "gensor"),
    ("gemv(m=4, k=5)", "h200", "extended"),
    ("gemm(m=2, n=2, k=3)", "t4", "extended"),
    ("reduce_sum(m=12, k=17)", "h200", "extended"),
    ("conv2d(n=1, c=2, h=3, w=3, k=2, r=2, s=2)", "t4", "gensor"),
]


def test_the_floor_of_waves_holds_however_few_blocks_reside() -> None:
    """Four blocks to a multiprocessor are over sooner by twos than as three and one: more that may reside is not less time."""
    graph = ConstructionGraph("gemm(m=512, n=512, k=512)", "h200")
    ints, floats, row = graph.tables.ints, graph.tables.floats, graph.initial().row
    units, rng, tighter = int(ints[UNITS]), np.random.default_rng(0), 0
    for _ in range(400):
        blocks, most, busy = int(rng.integers(1, 9)) * units, int(rng.integers(1, 9)), float(rng.uniform(1e4, 1e6))
        work = busy * float(rng.uniform(1.0, 4.0))
        ramp = least_cycles(row, 0.0, 0.0, 0.0, 0.0, blocks, blocks, 1.0, 0.0, ints, floats) / 2  # one wave, and one beside
        floor = least_cycles(row, busy, work, 0.0, 0.0, blocks, most, 1.0, 0.0, ints, floats)
        times = [_waves(blocks, units, resident, 1.0, busy, work, ramp)[0] for resident in range(1, most + 1)]
        assert floor <= (min(times) + ramp) * (1 + 1e-9)
        tighter += times[-1] > min(times) * (1 + 1e-9)
    assert tighter > 20  # as many as may reside are not always the fastest


@pytest.mark.parametrize(("operator", "machine", "space"), thorough_but(TINY))
def test_the_optimum_is_that_of_brute_force_by_the_oracle(operator: str, machine: str, space: str) -> None:
    """The oracle is written a second time, in plain Python; the latency of each of its programs is the model's."""
    graph = graph_of(operator, machine, space)
    slow = Oracle(graph.operator, graph.hardware, space)
    schedules = {slow.write(state) for state in slow.enumerate()}
    seconds = [graph.latency(schedule) for schedule in schedules]
    for found in (certify(graph), certify(graph, enumerate_up_to=0)):
        assert found.optimum == min(seconds) == graph.latency(found.best)
        assert found.best in schedules
        assert found.optima == seconds.count(min(seconds))


@pytest.mark.thorough
@pytest.mark.parametrize(("operator", "machine", "space"), thorough_but(SMALL, *SMALL[:2], *SMALL[12:]))
def test_branch_and_bound_finds_what_enumeration_finds(operator: str, machine: str, space: str) -> None:
    """The same seconds to the last bit, and as many optimal schedules, whatever way it goes."""
    graph = graph_of(operator, machine, space)
    assert count_schedules(graph.tables.ints, graph.tables.sizes) < 4e6
    every = enumerated(graph)
    for found in (branch_and_bound(graph), branch_and_bound(graph, slack=0.8, backwards=True)):
        assert (found.seconds, found.optima) == (every.seconds, every.optima)


def programs(graph: ConstructionGraph, count: int) -> np.ndarray:
    """Legal programs on CUDA cores, all levels opened: half by walks, half drawn evenly as far as they are legal."""
    rng = np.random.default_rng(7)
    rows = np.stack([graph.random_schedule(rng).row for _ in range(count)])
    rows[:, LEVEL] = 1
    rows = np.concatenate([rows, sample_evenly(graph, rng, 20 * count)[:count]])
    return rows[rows[:, TENSOR_CORE] == 0]


@pytest.mark.parametrize("space", ["gensor", "extended"])
@pytest.mark.parametrize("machine", ["h200", "t4"])
@pytest.mark.parametrize("operator", thorough_but(OPERATORS, *OPERATORS[::6]))
def test_the_floor_is_below_every_completion(operator: str, machine: str, space: str) -> None:
    """Of programs whose free parts are forgotten: the floor with and without the reduction's tile, and the padding."""
    graph = graph_of(operator, machine, space)
    tables = graph.tables
    reduce, longest = reduction_tiles(tables)
    rows = programs(graph, 60)
    assert len(rows) > 40
    for row, seconds in zip(rows, graph.latencies(rows), strict=True):
        tiles = row[TILE + MAX_AXES : TILE + 2 * MAX_AXES]
        begun = row.copy()
        begun[VTHREAD : VTHREAD + MAX_AXES] = 1
        begun[TILE + SPATIAL_SLOTS : TILE + MAX_AXES] = 1
        at = int(np.flatnonzero((reduce == tiles[SPATIAL_SLOTS:]).all(axis=1))[0])
        cap = CODE_LIMIT_GPU // (math.prod(row[:SPATIAL_SLOTS].tolist()) << int(row[UNROLL]))
        fixed = floor_seconds(begun, 1, longest[at, cap], tables.ints, tables.floats)
        for level in range(1, 4):
            begun[TILE + level * MAX_AXES + SPATIAL_SLOTS : TILE + (level + 1) * MAX_AXES] = 1
        free = floor_seconds(begun, 0, 1, tables.ints, tables.floats)
        assert fixed <= seconds * (1 + 1e-12)
        assert free <= seconds * (1 + 1e-12)
        extents = [max(1, n) for n in tables.ints[4 : 4 + SPATIAL_SLOTS].tolist()]
        padded = math.prod(-(-n // int(t)) * int(t) for n, t in zip(extents, tiles[:SPATIAL_SLOTS], strict=True))
        assert padded <= most_padding(begun, seconds, tables.ints, tables.floats) * (1 + 1e-9)


@pytest.mark.thorough
def test_the_floor_is_no_trifle() -> None:
    """With the reduction's tile it is within a third of the latency of the best programs of a product."""
    graph = graph_of("gemm(m=1024, n=1024, k=1024)", "h200", "gensor")
    found = certify(graph)
    assert found.method == "branch and bound" and found.visited < 1e-3 * found.candidates
    assert found.optimum == graph.latency(found.best)


def test_what_cannot_be_bounded_is_refused() -> None:
    for operator, machine, space in (
        ("gemm(m=64, n=64, k=64)", "cascade_lake", "gensor"),
        ('gemm(m=64, n=64, k=64, dtype="float16")', "h200", "extended"),
    ):
        with pytest.raises(ValueError, match="branch and bound"):
            branch_and_bound(graph_of(operator, machine, space))
    with pytest.raises(ValueError, match="no proof within 10 nodes"):
        certify(graph_of("gemm(m=1024, n=1024, k=1024)", "h200", "gensor"), most_nodes=10)


def test_a_part_of_the_knobs_is_a_space_of_its_own() -> None:
    """The best of a sub-space is that of the programs of the whole space whose other knobs stand at the default."""
    graph = graph_of("gemm(m=2, n=2, k=2)", "t4", "extended")
    found = certify(graph, knobs=["unroll", "stages"])
    rows = np.concatenate(list(graph.enumerate()))
    kept = [KNOB + i for i, knob in enumerate(KNOBS) if knob.name not in ("unroll", "stages")]
    seconds = graph.latencies(rows[(rows[:, kept] == graph.initial().row[kept]).all(axis=1)])
    assert found.space == "extended(unroll, stages)"
    assert (found.optimum, found.optima) == (seconds.min(), (seconds == seconds.min()).sum())
    with pytest.raises(ValueError, match="moves no knobs"):
        certify(graph_of("gemm(m=3, n=4, k=4)", "h200", "gensor"), knobs=["unroll"])


def test_certificates_are_files_and_checks_find_what_is_wrong(tmp_path: Path) -> None:
    graph = graph_of("gemv(m=100, k=333)", "h200", "gensor")
    found = certify(graph)
    path = tmp_path / "deep" / "certificates.jsonl"
    assert read_certificates(path) == []
    append_certificate(path, found)
    assert read_certificates(path) == [found]
    assert check(found, 1000, 10**7, again=0.9).wrong == []
    assert check(found, 1000, 0, again=None).wrong == []
    worse = graph.initial()
    data = found.__dict__ | {"latency": graph.latency(worse).hex(), "schedule": str(worse), "bound": graph.latency(worse).hex()}
    for samples, most in ((1000, 10**7), (1000, 0)):
        assert len(check(Certificate(**data), samples, most, again=None).wrong) == 1
    assert check(Certificate(**data | {"fingerprint": "0"}), 0, 0, again=None).wrong
    with pytest.raises(ValueError, match="fields"):
        Certificate.from_json("{}")
    with pytest.raises(ValueError, match="method"):
        Certificate(**data | {"method": "guess"})
