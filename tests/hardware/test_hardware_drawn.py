"""Machines that are drawn: between known ones and around them, whole in what belongs together, and good for graphs."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import hardware
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.observation import static_features
from gensor_gym.hardware.described import from_json, to_json
from gensor_gym.hardware.drawn import drawn

KNOWN = [hardware.get(name) for name in ("h200", "a100", "v100")]
TOGETHER = ("arch", "lanes", "warp", "threads_per_unit", "blocks_per_unit", "shared_per_block", "registers_per_unit")


def test_what_belongs_together_is_one_machines_and_rates_follow_units_and_clock() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        machine = drawn(KNOWN, rng)
        (one,) = [known for known in KNOWN if all(getattr(known, name) == getattr(machine, name) for name in TOGETHER)]
        speed = machine.units * machine.clock / (one.units * one.clock)
        assert machine.peak_of("float32") == pytest.approx(one.peak_of("float32") * speed)
        assert machine.level("shared").bandwidth == pytest.approx(one.level("shared").bandwidth * speed)
        assert machine.level("shared").capacity == one.level("shared").capacity
        assert machine.level("dram").latency * machine.clock == pytest.approx(one.level("dram").latency * one.clock)
        assert from_json(to_json(machine)) == machine


def test_they_lie_between_and_around_and_differ() -> None:
    rng = np.random.default_rng(1)
    rates = np.log([drawn(KNOWN, rng).level("dram").bandwidth for _ in range(300)])
    ends = np.log([known.level("dram").bandwidth for known in KNOWN])
    assert len(set(rates)) == 300 and rates.min() < ends.min() < rates.mean() < ends.max() < rates.max()
    assert (np.abs(rates - rates.clip(ends.min(), ends.max())) < 1.5).all()


def test_the_same_draw_is_the_same_machine_and_an_environment_shows_it() -> None:
    one, other = (drawn(KNOWN, np.random.default_rng(3)) for _ in range(2))
    assert one == other and one != drawn(KNOWN, np.random.default_rng(4))
    graph = ConstructionGraph("gemm(m=96, n=80, k=64)", one, "gensor")
    assert 0.0 < graph.floor < graph.latency(graph.initial())
    shown = [static_features(graph.operator, machine)[-13:] for machine in (one, *KNOWN)]
    assert all((shown[0] != values).any() for values in shown[1:])


def test_machines_of_two_kinds_are_refused() -> None:
    for wrong in ([], [hardware.get("h200"), hardware.get("cascade_lake")]):
        with pytest.raises(ValueError, match="of one kind"):
            drawn(wrong, np.random.default_rng(0))
