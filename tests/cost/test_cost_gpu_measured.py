"""The analytic model of GPUs against kernels that ran on an H100: what each of its terms is there for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from experiments.benches.model import Sample
from experiments.common.statistics import spearman
from experiments.evidence.facts import read_facts
from experiments.evidence.ranking import recorded
from gensor_gym import ConstructionGraph
from gensor_gym.codegen.cuda.mma.plan import make_matrix_plan
from gensor_gym.codegen.program import lower
from gensor_gym.cost.gpu.direct import lines_of, load_words
from gensor_gym.cost.gpu.lanes import store_conflicts
from gensor_gym.cost.gpu.matrix_copies import is_shifted, matrix_width
from gensor_gym.cost.gpu.simt import window_share
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import TENSOR_CORE

FOLDER = Path(__file__).resolve().parents[2] / "results" / "h100"
ONE = "vthread[1x1x1x1x1x1x1x1] level=1"


@cache
def tables() -> dict[str, Sample]:
    """Tables of the train and validation parts by operator."""
    return {table.operator: table for table in recorded(FOLDER, read_facts(FOLDER).machine)}


def table(start: str) -> Sample:
    """The first table whose operator begins so."""
    return next(found for name, found in tables().items() if name.startswith(start))


def scale(found: Sample) -> float:
    """Median of measured over predicted."""
    return float(np.median(found.seconds / found.graph.latencies(found.rows)))


def seconds(on: ConstructionGraph, text: str) -> float:
    """What the model says of a program."""
    return float(on.latencies(Schedule.parse(text).row[None])[0])


@pytest.mark.parametrize("start", ["gemv", "reduce_sum", "elementwise", "max_pool2d", "gemm(m=1024", "batched_gemm(b=16"])
def test_times_are_of_the_right_size(start: str) -> None:
    assert 1 / 1.5 <= scale(table(start)) <= 1.5


def test_large_tables_are_ranked() -> None:
    ranks = {
        name: spearman(found.graph.latencies(found.rows), found.seconds)
        for name, found in tables().items()
        if len(found.seconds) >= 150
    }
    assert len(ranks) == 7
    assert min(ranks.values()) >= 0.85 and np.mean(list(ranks.values())) >= 0.9


@pytest.mark.parametrize(
    ("start", "dtype", "least"),
    [
        ("conv2d(n=16, c=256, h=14", "float16", 0.9),
        ("conv2d(n=16, c=256, h=14", "tf32", 0.75),
        ("gemm(m=512, n=2048", "tf32", 0.9),
    ],
)
def test_copies_element_by_element_are_charged(start: str, dtype: str, least: float) -> None:
    """Correlations were 0.70, 0.60 and 0.26 where every copy was taken for one of 16 bytes."""
    found = next(t for name, t in tables().items() if name.startswith(start) and dtype in name)
    assert spearman(found.graph.latencies(found.rows), found.seconds) >= least


def test_blocks_are_begun_one_after_the_other() -> None:
    """exp of 3.1 million elements: 1.89 ms in blocks of one thread, 8.5 us in blocks of 64."""
    found = table("elementwise")
    slowest = int(np.argmax(found.seconds))
    predicted = found.graph.latencies(found.rows)
    assert found.seconds[slowest] > 1.8e-3
    assert predicted[slowest] == pytest.approx(found.seconds[slowest], rel=0.25)


def test_rows_that_are_not_padded_conflict_where_copies_stand_across() -> None:
    """4096 in float32, A's rows of 256 in shared memory: 5.0 ms as they are, 3.25 ms padded, with steps of 32."""
    on = ConstructionGraph("gemm(m=4096, n=4096, k=4096)", "h100", "extended", calibrated=False)
    tiles = "tile[1x1x1x8x8x8x1x1 1x1x1x256x128x32x1x1 1x1x1x256x128x32x1x1 1x1x1x256x128x32x1x1]"
    knobs = f"{ONE} vector=4 unroll=4 stages=3 register_buffer=2"
    plain, padded = (seconds(on, f"{tiles} {knobs}{layout}") for layout in ("", " shared_layout=1"))
    assert plain > 1.3 * padded
    rows = [Schedule.parse(f"{tiles} {knobs}{layout}").row for layout in ("", " shared_layout=1", " shared_layout=2")]
    assert [store_conflicts(row, 0, 1, on.tables.ints) for row in rows] == [32.0, 4.0, 1.0]


def test_lanes_that_walk_along_rows_touch_a_line_each() -> None:
    on = ConstructionGraph("reduce_sum(m=2048, k=768)", "h100", "compact", calibrated=False)
    row = Schedule.parse(f"tile[1x1x1x1x1x16x1x1 1x1x1x1x64x64x1x1 1x1x1x1x64x64x1x1 1x1x1x1x64x64x1x1] {ONE} vector=4").row
    assert load_words(row, 0, on.tables.ints) == 4
    assert lines_of(row, 0, 4, on.tables.ints) == 32
    assert lines_of(row, 1, 1, on.tables.ints) == 1  # the output's neighbours


def test_points_of_a_window_share_what_a_thread_loads() -> None:
    """4 rows of pixels and 4 places of the window along them: 7 rows of the image in place of 16."""
    on = ConstructionGraph("conv2d(n=1, c=64, h=56, w=56, k=64, r=3, s=3, padding=1)", "h100", "compact", calibrated=False)
    tiles = "tile[1x1x1x4x1x1x4x1 1x1x16x4x4x4x4x4 1x1x16x4x4x4x4x4 1x1x16x4x4x4x4x4]"
    row = Schedule.parse(f"{tiles} {ONE} vector=4 unroll=4 shared_layout=1").row
    assert [window_share(row, t, on.tables.ints) for t in (0, 1)] in ([7 / 16, 1.0], [1.0, 7 / 16])


def test_widths_of_copies_are_those_of_the_generator() -> None:
    """Of every recorded program by mma.sync."""
    checked = shifted = 0
    for found in tables().values():
        ints = found.graph.tables.ints
        for row in found.rows[found.rows[:, TENSOR_CORE] == 1][::7]:
            plan = make_matrix_plan(lower(found.graph.operator, Schedule(row), found.graph.hardware))
            for tile in (plan.a_tile, plan.b_tile):
                assert matrix_width(row, tile.read, ints) == tile.width, f"{found.operator} {Schedule(row)}"
                assert is_shifted(row, tile.read, ints) == (tile.shifts >= 0)
                checked, shifted = checked + 1, shifted + (tile.shifts >= 0)
    assert checked > 100 and shifted > 0
