"""Inputs that begin past a cache line, as NumPy's do: what the model says of them on the machine at hand."""

from __future__ import annotations

import dataclasses

import pytest

from gensor_gym import hardware
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule

TILES = "tile[1x1x1x8x32x4x1x1 1x1x1x8x32x64x1x1 1x1x1x64x64x64x1x1 1x1x1x64x64x64x1x1] vthread[1x1x1x1x1x1x1x1] level=2 unroll=4"


@pytest.mark.parametrize(("knobs", "slower"), [("", True), (" pack_b=1", False)])
def test_only_loads_of_what_is_not_packed_lie_in_two_lines(knobs: str, slower: bool) -> None:
    """The lanes run along B: whole lines of it are loaded where it lies, or from panels that begin at lines."""
    described = hardware.get("cascade_lake")
    at_hand = dataclasses.replace(described, name="host")
    schedule = Schedule.parse(TILES + knobs)
    there, here = (ConstructionGraph("gemm(m=256, n=256, k=256)", hw, "extended") for hw in (described, at_hand))
    assert here.is_legal(schedule)
    assert (here.latency(schedule) > there.latency(schedule)) is slower
    assert here.latency(schedule) >= there.latency(schedule)
