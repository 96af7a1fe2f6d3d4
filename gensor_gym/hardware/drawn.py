"""Random machines for training policies: their constants are drawn between and around the constants of known machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from gensor_gym.hardware.types import Hardware, MemoryLevel

Between = Callable[[float, float], float]
"""Type of a function that draws a constant between those of two machines."""
SPREAD = 0.25
"""Standard deviation of the natural logarithm of the random factor on each constant of a drawn machine."""


def drawn(known: Sequence[Hardware], rng: np.random.Generator, name: str = "drawn") -> Hardware:
    """Draw a random machine whose constants are between those of two of the known machines.

    The architecture (arch, lanes, warp, limits of a unit and a block, transactions) is taken as a whole from one of the two,
    because these numbers belong together. Units, clock and overhead, and bandwidth and capacity of the levels outside a unit, are
    between the two on a logarithmic scale, each with a random factor of its own. Rates of arithmetic and of levels inside a unit
    follow units and clock; latencies follow the clock. ValueError for no machine or mixed kinds.
    """
    if not known or len({machine.kind for machine in known}) != 1:
        raise ValueError(f"machines {[machine.name for machine in known]}: expected one or more of one kind")
    one, other = (known[int(i)] for i in rng.integers(len(known), size=2))
    share = rng.uniform()

    def between(ours: float, theirs: float) -> float:
        return float(np.exp((1 - share) * np.log(ours) + share * np.log(theirs) + SPREAD * rng.normal()))

    units = max(1, round(between(one.units, other.units)))
    clock = between(one.clock, other.clock)
    speed = units * clock / (one.units * one.clock)
    memory = tuple(_level(level, other, speed, one.clock / clock, between) for level in one.memory)
    overhead = between(one.launch_overhead, other.launch_overhead)
    return dataclasses.replace(
        one, name=name, units=units, clock=clock, memory=memory, launch_overhead=overhead, peak=_scaled(one.peak, speed),
        tensor_peak=_scaled(one.tensor_peak, speed), source={"": f"drawn near {one.name} and {other.name}"},
    )  # fmt: skip


def _scaled(rates: tuple[tuple[str, float], ...], factor: float) -> tuple[tuple[str, float], ...]:
    return tuple((dtype, rate * factor) for dtype, rate in rates)


def _level(level: MemoryLevel, other: Hardware, speed: float, slower: float, between: Between) -> MemoryLevel:
    """Draw a memory level. Levels shared by all units are interpolated; others follow units and clock."""
    theirs = next((one for one in other.memory if one.name == level.name), level)
    if level.name not in ("l2", "l3", "dram"):
        return dataclasses.replace(level, bandwidth=level.bandwidth * speed, latency=level.latency * slower)
    bandwidth, capacity = between(level.bandwidth, theirs.bandwidth), between(level.capacity, theirs.capacity)
    return dataclasses.replace(level, bandwidth=bandwidth, capacity=round(capacity), latency=level.latency * slower)
