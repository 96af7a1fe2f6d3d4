"""Limits and model of Winograd's algorithm, against a second implementation of the division into tasks."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator
from gensor_gym.winograd.graph import WinogradGraph
from gensor_gym.winograd.layout import Layout
from gensor_gym.winograd.model import TERMS
from gensor_gym.winograd.schedule import WinogradSchedule
from tests.support.c_cases import machine
from tests.support.winograd_cases import winograd


def small(hw: Hardware) -> Hardware:
    """The machine with an L2 cache of 64 KB, in which few rows of image tiles fit."""
    levels = [dataclasses.replace(one, capacity=1 << 16) if one.name == "l2" else one for one in hw.memory]
    return dataclasses.replace(hw, memory=tuple(levels))


CASES = [(winograd(14, 14, 64, 96, "padding=1"), machine()), (winograd(7, 9, 24, 40), machine(8)),
         (winograd(4, 4, 8, 8, n=3), machine(4)), (winograd(9, 40, 64, 48, n=2, result="nchw"), small(machine()))]  # fmt: skip


def is_legal(op: Operator, hw: Hardware, given: WinogradSchedule) -> bool:
    """The limits, written for one schedule, with nothing of the model."""
    height, vectors, block, panels, apart = (given.value(name) for name in ("height", "vectors", "block", "panels", "apart"))
    n, k, p, q = (op.extents[axis] for axis in op.spatial)
    tiles, c = n * math.ceil(p / 2) * math.ceil(q / 2), math.ceil(op.inputs[0].shape[-1] / hw.lanes) * hw.lanes
    units, row = 1 if apart else hw.units, math.ceil(q / 2) if 'result="nhwc"' not in str(op) else 1
    blocks = min(tiles // row, math.ceil(math.ceil(tiles / block) / units) * units)
    group = min(panels, math.ceil(k / (vectors * hw.lanes))) * vectors * hw.lanes
    smaller = {field.name: [0, *field.values] for field in given.fields}
    before = {name: smaller[name][smaller[name].index(given.value(name)) - 1] for name in ("block", "panels")}
    return (
        height * vectors + vectors + 1 <= hw.vector_registers
        and (vectors == 1 or (vectors - 1) * hw.lanes < k)
        and (height == 1 or height <= min(block, tiles))
        and (block == 8 or before["block"] < tiles)
        and (panels == 1 or before["panels"] * vectors * hw.lanes < k)
        and (apart == 0 or group < k)
        and 4 * 16 * math.ceil(tiles // row / blocks) * row * (c + group) <= 8 * hw.level("l2").capacity
    )


@pytest.mark.parametrize(("op", "hw"), CASES, ids=["whole", "part", "images", "lines"])
def test_limits(op: Operator, hw: Hardware) -> None:
    graph = WinogradGraph(op, hw)
    legal = {row.tobytes() for row in graph._all}
    rng = np.random.default_rng(0)
    rows = rng.integers(0, WinogradSchedule.tops + 1, (400, WinogradSchedule.length)).astype(np.int32)
    wanted = [is_legal(op, hw, WinogradSchedule(row)) for row in rows]
    assert [row.tobytes() in legal for row in rows] == wanted and graph.fits(rows).tolist() == wanted
    assert 0 < sum(wanted) < len(rows) and graph.is_legal(graph.initial())


@pytest.mark.parametrize(("op", "hw"), CASES, ids=["whole", "part", "images", "lines"])
def test_blocks_cover_all_tiles_and_planes_hold_them(op: Operator, hw: Hardware) -> None:
    graph = WinogradGraph(op, hw)
    for row in graph._all[:: max(1, len(graph._all) // 60)]:
        one = Layout(op, hw, graph.schedule(row))
        rows, row = one.tiles // one.together, one.together
        assert row == (math.ceil(op.extents[op.spatial[-1]] / 2) if 'result="nhwc"' not in str(op) else 1)
        counts = [((i + 1) * rows // one.blocks - i * rows // one.blocks) * row for i in range(one.blocks)]
        assert sum(counts) == one.tiles and set(counts) <= set(one.sizes) and max(counts) == one.sizes[-1]
        assert one.blocks % hw.units == 0 or one.blocks == rows or one.schedule.value("apart") == 1
        assert one.row >= one.channels and one.sum_row >= one.group and one.group % one.panel == 0
        assert one.plane >= one.sizes[-1] * one.row and one.sum_plane >= one.sizes[-1] * one.sum_row
        assert (one.groups - 1) * one.group < one.outputs <= one.groups * one.group
        assert one.plane % 1024 == one.sum_plane % 1024 == 64, "planes are in different sets of a cache"


@pytest.mark.parametrize(("op", "hw"), CASES, ids=["whole", "part", "images", "lines"])
def test_terms_add_up_and_no_time_is_below_the_floor(op: Operator, hw: Hardware) -> None:
    graph = WinogradGraph(op.freeze(), hw)
    terms = graph.model.terms(graph._all)
    assert terms.shape == (len(graph._all), 1 + len(TERMS)) and np.allclose(terms[:, 0], terms[:, 1:].sum(1))
    assert np.isfinite(terms).all() and (terms >= 0).all() and terms[:, 0].min() > graph.floor
    row = np.zeros((1, WinogradSchedule.length), np.int32)
    row[0, 0] = WinogradSchedule.tops[0]
    row[0, 1] = WinogradSchedule.tops[1]
    assert np.isinf(graph.latencies(row)[0]), "14 x 4 vectors need more registers"


def test_what_was_measured_of_blocks() -> None:
    """Register tiles of 24 vectors are predicted to be faster than those of 4, and tiny blocks read filters too often."""
    graph = WinogradGraph(winograd(64, 64, 256, 256, "padding=1").freeze(), machine())
    words = "vectors={} block={} panels=1 apart=0"
    fast, low, often = (graph.latency(graph.parse(f"height={height} {words.format(*rest)}"))
                        for height, *rest in ((6, 4, 64), (4, 1, 64), (6, 4, 8)))  # fmt: skip
    assert low > 1.3 * fast and often > 1.1 * fast


def test_text() -> None:
    given = WinogradSchedule.parse("height=6 vectors=4 block=64 panels=2 apart=1")
    assert WinogradSchedule.parse(str(given)) == given and given.value("block") == 64
    with pytest.raises(ValueError, match="height=5: expected one of 1, 2, 4"):
        WinogradSchedule.parse("height=5")
