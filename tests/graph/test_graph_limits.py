"""Every limit of the hardware, exactly: what a program takes is allowed, one less is not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import ConstructionGraph, hardware
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from tests.support.graph_walks import OPERATORS, graph_of, grown
from tests.support.oracle import Oracle, State

HUGE = 1 << 40


def roomy(machine: str) -> Hardware:
    """The machine with no limit but the code size."""
    hw = hardware.get(machine)
    return replace(
        with_capacity(hw, "l2", HUGE),
        name="roomy",
        threads_per_block=HUGE,
        registers_per_thread=HUGE,
        registers_per_unit=HUGE,
        shared_per_block=HUGE,
        vector_registers=HUGE if hw.kind == "cpu" else 0,
    )


def with_capacity(hw: Hardware, name: str, capacity: int) -> Hardware:
    levels = tuple(replace(level, capacity=capacity) if level.name == name else level for level in hw.memory)
    return replace(hw, memory=levels)


def granted(oracle: Oracle, state: State) -> int:
    """Registers of a block: in units of 256 for a warp, warps in fours."""
    warps = math.ceil(oracle.threads(state) / 32)
    return math.ceil(oracle.registers(state) * 32 / 256) * 256 * math.ceil(warps / 4) * 4


Case = tuple[str, Callable[[Oracle, State], int], Callable[[Hardware, int], Hardware]]
CASES: list[Case] = [
    ("h200", Oracle.threads, lambda hw, n: replace(hw, threads_per_block=n)),
    ("h200", Oracle.registers, lambda hw, n: replace(hw, registers_per_thread=n)),
    ("h200", granted, lambda hw, n: replace(hw, registers_per_unit=n)),
    ("h200", Oracle.shared_bytes, lambda hw, n: replace(hw, shared_per_block=n)),
    ("cascade_lake", lambda o, s: sum(o.vectors(s)) + 1, lambda hw, n: replace(hw, vector_registers=n)),
    (
        "cascade_lake",
        lambda o, s: o.tile_bytes(s, 1),
        lambda hw, n: with_capacity(with_capacity(hw, "l2", n), "l3", HUGE),
    ),
    # the share of L3 is at least four times L2, so L2 is made a quarter of the task tile
    (
        "cascade_lake",
        lambda o, s: o.tile_bytes(s, 2),
        lambda hw, n: with_capacity(with_capacity(hw, "l2", n // 4), "l3", 0),
    ),
    (
        "cascade_lake",
        lambda o, s: 2 * o.tile_bytes(s, 2),
        lambda hw, n: with_capacity(with_capacity(hw, "l2", n // 16), "l3", n),
    ),
]
NAMES = ["threads", "registers", "registers of a block", "shared", "vector registers", "L1 tile", "task tile", "share of L3"]


def programs(machine: str) -> list[tuple[str, Schedule]]:
    """Legal programs of every operator: grown to the limits, and half way."""
    rng = np.random.default_rng(0)
    paths = [(op, grown(graph_of(op, machine, "extended"), rng, 0.2)) for op in OPERATORS]
    return [(op, path[at]) for op, path in paths for at in (-1, len(path) // 2)]


@pytest.mark.parametrize(("machine", "takes", "limited"), CASES, ids=NAMES)
def test_a_limit_is_met_exactly(machine: str, takes: Callable, limited: Callable) -> None:
    refused = 0
    for operator, schedule in programs(machine):
        op = graph_of(operator, machine, "extended").operator
        free = Oracle(op, roomy(machine), "extended")
        count = takes(free, free.read(schedule))
        enough = ConstructionGraph(op, limited(roomy(machine), count), space="extended")
        short = ConstructionGraph(op, limited(roomy(machine), count - 1), space="extended")
        assert enough.is_legal(schedule) == Oracle(op, enough.hardware, "extended").is_legal(schedule)
        assert not short.is_legal(schedule)
        refused += enough.is_legal(schedule)
    assert refused > 10
