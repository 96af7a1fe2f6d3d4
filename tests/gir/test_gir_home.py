"""What storing costs in the model of fused operators: what copying was measured to take decides how is stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gensor_gym import hardware
from gensor_gym.dataflow.suite import make
from gensor_gym.gir.graph import GirGraph
from gensor_gym.hardware.types import Hardware

ROPE = {"t": 512, "h": 32, "d": 128}
"""Sixteen megabytes: beyond the cores' own caches, within the shared one."""
PLAIN, PAST = (f"vector=16 tile=2 rows=2 loop=256 streaming={how} place=dram" for how in (0, 1))


def measured(**levels: tuple[float, float]) -> Hardware:
    """A machine of which bytes a second (copied, streamed) were measured in those levels."""
    machine = hardware.get("cascade_lake")
    memory = [replace(m, **dict(zip(("copied", "streamed"), levels.get(m.name, ()), strict=False))) for m in machine.memory]
    return replace(machine, memory=tuple(memory))


def memory_seconds(machine: Hardware, text: str) -> float:
    """Seconds of the model's term for where tensors lie."""
    graph = GirGraph(make("rope", **ROPE), machine)
    return graph.terms(graph.parse(text))["memory"]


def test_a_stored_byte_costs_what_copying_one_takes_beside_reading_it() -> None:
    reading = hardware.get("cascade_lake").level("l3").bandwidth
    bytes_each, slower = 512 * 32 * 128 * 4, 1.03 + 0.2  # of a second row, and of loads across lines
    known = memory_seconds(measured(l3=(reading / 2.25, 0.0)), PLAIN)
    for copied in (reading / 2.25, reading / 3.0, reading / 5.0):
        found = memory_seconds(measured(l3=(copied, 0.0)), PLAIN)
        assert found - known == pytest.approx(slower * bytes_each * (1 / copied - 2.25 / reading), rel=1e-6, abs=1e-12)


def test_what_stays_in_the_cores_caches_is_of_those_that_take_part() -> None:
    """Two megabytes lie in the second caches of two cores, and in no core's alone."""
    graph = GirGraph(make("rope", t=64, h=32, d=128), measured(l3=(1e10, 1e10)))
    both, alone = (graph.terms(graph.parse(PLAIN.replace("256", loop)))["memory"] for loop in ("64", "1024"))
    assert alone > 3 * both
    known = GirGraph(make("rope", t=64, h=32, d=128), hardware.get("cascade_lake"))
    both, alone = (known.terms(known.parse(PLAIN.replace("256", loop)))["memory"] for loop in ("64", "1024"))
    assert alone == pytest.approx(2 * both)


def test_lines_that_are_stored_in_parts_leave_before_they_are_whole() -> None:
    machine = measured(l3=(1e10, 1e10))
    halves, whole = "vector=8 tile=1 rows=8 loop=256 streaming=1", "vector=8 tile=2 rows=8 loop=256 streaming=1"
    assert memory_seconds(machine, halves) > 1.5 * memory_seconds(machine, whole)
    assert memory_seconds(machine, halves.replace("streaming=1", "streaming=0")) < memory_seconds(machine, halves) / 1.5


def test_slow_stores_past_the_caches_are_not_chosen() -> None:
    """As an AMD EPYC (Zen 5) has it: what lies in the shared cache is copied there twice as fast as it is stored past it."""
    reading = hardware.get("cascade_lake").level("l3").bandwidth
    slow, fast = measured(l3=(reading / 2.2, reading / 5.0)), measured(l3=(reading / 3.0, reading / 1.5))
    assert memory_seconds(slow, PAST) > 1.5 * memory_seconds(slow, PLAIN)
    assert memory_seconds(fast, PAST) < 0.8 * memory_seconds(fast, PLAIN)
    for machine, streaming in ((slow, 0), (fast, 1)):
        graph = GirGraph(make("rope", **ROPE), machine)
        best = graph.schedule(graph.table.rows(graph.table.seconds.argmin()[None])[0])
        assert best.value("streaming") == streaming


def test_what_was_measured_beyond_the_cores_tells_nothing_of_what_lies_within_them() -> None:
    near = make("rope", t=8, h=8, d=64)
    known, other = (GirGraph(near, machine) for machine in (measured(l3=(2e9, 2e9)), measured(l3=(1e9, 1e9))))
    assert known.terms(known.parse(PLAIN)) == other.terms(other.parse(PLAIN))
    assert known.terms(known.parse(PAST)) != other.terms(other.parse(PAST))
