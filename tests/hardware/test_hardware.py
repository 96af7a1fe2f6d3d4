"""Machines: figures with sources, occupancy, machines drawn between known ones."""

from __future__ import annotations

from dataclasses import fields, replace

import numba
import numpy as np
import pytest

from gensor_gym import hardware
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.observation import static_features
from gensor_gym.hardware.described import from_json, to_json
from gensor_gym.hardware.drawn import drawn
from gensor_gym.hardware.occupancy import blocks_per_unit

CONSTANTS = [name for name in hardware.names() if name != "host"]
GPUS = [name for name in CONSTANTS if hardware.get(name).kind == "gpu"]
CPUS = [name for name in CONSTANTS if hardware.get(name).kind == "cpu"]


def occupancy(name: str, threads: int, registers: int, shared: int) -> int:
    """Blocks per multiprocessor on a named GPU."""
    hw = hardware.get(name)
    return blocks_per_unit(
        threads,
        registers,
        shared,
        hw.threads_per_unit,
        hw.blocks_per_unit,
        hw.registers_per_unit,
        hw.level("shared").capacity,
        hw.shared_granularity,
        hw.shared_reserved,
    )


def test_names_are_looked_up_in_any_case_and_hardware_passes_through() -> None:
    h200 = hardware.get("H200")
    assert h200.name == "h200"
    assert hardware.get(h200) is h200
    changed = replace(h200, units=1)
    assert hardware.get(changed) is changed


@pytest.mark.parametrize("wrong", ["gtx480", "", None, 3])
def test_an_unknown_name_is_an_error_that_lists_the_names(wrong: object) -> None:
    with pytest.raises(ValueError, match="h200.*cascade_lake.*host"):
        hardware.get(wrong)  # type: ignore[arg-type]


def test_all_promised_machines_are_there() -> None:
    promised = {"h200", "h100", "a100", "rtx4090", "rtx3090", "orin_nano", "v100", "t4", "mi300x", "cascade_lake", "host"}
    assert set(hardware.names()) >= promised


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_machine_is_read_back_from_its_text(name: str) -> None:
    machine = hardware.get(name)
    again = hardware.from_json(hardware.to_json(machine))
    assert again == machine and hash(again) == hash(machine)


GPU_ONLY = ("warp", "thread", "block", "register", "shared", "tensor", "mma")


@pytest.mark.parametrize("name", CONSTANTS)
def test_every_figure_has_a_source(name: str) -> None:
    hw = hardware.get(name)
    gpu_only = {f.name for f in fields(hw) if f.name.startswith(GPU_ONLY)}
    skipped = {"name", "kind", "memory", "source"} | (
        (gpu_only | {"banks", "compilable"}) if hw.kind == "cpu" else set()
    )
    wanted = {f.name for f in fields(hw)} - skipped
    wanted |= {f"memory.{m.name}.{f.name}" for m in hw.memory for f in fields(m) if f.name != "name"}
    wanted -= {f"memory.{m.name}.{how}" for m in hw.memory for how in ("copied", "streamed") if not getattr(m, how)}
    assert wanted - set(hw.source) == set()
    assert set(hw.source) - wanted == set()
    assert all(text.strip() for text in hw.source.values())


@pytest.mark.parametrize("name", CONSTANTS)
def test_memory_runs_outwards(name: str) -> None:
    hw = hardware.get(name)
    expected = ["register", "shared", "l2", "dram"] if hw.kind == "gpu" else ["register", "l1", "l2", "l3", "dram"]
    assert [m.name for m in hw.memory] == expected
    bandwidths = [m.bandwidth for m in hw.memory]
    latencies = [m.latency for m in hw.memory]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert latencies == sorted(latencies)
    assert all(m.capacity > 0 and m.transaction > 0 for m in hw.memory)


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("h200", 66.9), ("h100", 66.9), ("a100", 19.5), ("rtx4090", 82.6), ("rtx3090", 35.6), ("v100", 15.7), ("t4", 8.1),
        ("mi300x", 163.4),
    ],  # fmt: skip
)
def test_derived_peak_agrees_with_the_datasheet(name: str, teraflops: float) -> None:
    assert hardware.get(name).peak_of("float32") == pytest.approx(teraflops * 1e12, rel=0.01)


@pytest.mark.parametrize("name", GPUS)
def test_gpu_limits_are_consistent(name: str) -> None:
    hw = hardware.get(name)
    assert hw.shared_per_block + hw.shared_reserved <= hw.level("shared").capacity
    assert occupancy(name, 1024, 64, hw.shared_per_block) == 1
    assert occupancy(name, 1024, hw.registers_per_unit // 1024 + 1, 0) == 0  # more registers than a multiprocessor has: no launch
    assert hw.compilable == (name != "v100")


def test_two_core_cascade_lake_is_as_fast_as_it_was_seen() -> None:
    hw = hardware.get("cascade_lake")
    assert hw.units == 2 and hw.lanes == 16 and hw.vector_registers == 32
    assert 306e9 <= hw.peak_of("float32") <= 320e9


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (256, 96, 0, 2),  # floor per partition: 5 warps of 6, so 2 blocks and not 2.67
        (256, 128, 0, 2),
        (256, 129, 0, 1),
        (256, 216, 0, 1),
        (256, 64, 0, 4),
        (256, 32, 0, 8),  # threads
        (32, 16, 0, 32),  # blocks
        (1, 16, 0, 32),  # a part of a warp is a warp
        (128, 32, 100 * 1024, 2),  # shared memory: (100 + 1) x 2 <= 228
        (128, 32, 113 * 1024, 2),
        (128, 32, 113 * 1024 + 1, 1),
        (128, 32, 227 * 1024, 1),
        (128, 32, 228 * 1024, 0),
        (1024, 65, 0, 0),
        (0, 32, 0, 0),
    ],
)
def test_occupancy_on_hopper(threads: int, registers: int, shared: int, blocks: int) -> None:
    assert occupancy("h200", threads, registers, shared) == blocks


def test_occupancy_follows_the_card() -> None:
    assert occupancy("rtx4090", 256, 32, 0) == 6
    assert occupancy("t4", 256, 32, 0) == 4
    assert occupancy("rtx3090", 32, 16, 0) == 16
    assert occupancy("v100", 128, 32, 48 * 1024) == 2  # nothing reserved there
    assert occupancy("rtx4090", 128, 32, 49 * 1024) == 2
    assert occupancy("rtx4090", 128, 32, 49 * 1024 + 1) == 1


def test_occupancy_compiles_to_the_same_numbers() -> None:
    compiled = numba.njit(blocks_per_unit)
    limits = (2048, 32, 65536, 228 * 1024, 128, 1024)
    for threads in (32, 96, 256, 1024):
        for registers in (24, 96, 128, 255):
            for shared in (0, 5000, 60000):
                assert compiled(threads, registers, shared, *limits) == blocks_per_unit(
                    threads, registers, shared, *limits
                )


@pytest.mark.parametrize(
    ("threads", "registers", "blocks"),
    [
        (224, 96, 2),  # 3,072 a warp, 5 in the 16,384 of a partition: 20 warps, and not the 21 that 65,536 would hold
        (96, 104, 5),  # 3,328 a warp, 4 in a partition: 16 warps and not 19, blocks of 3
        (128, 128, 4),  # 4,096 a warp: partitions are filled without a rest
    ],
)
def test_no_warp_straddles_two_partitions(threads: int, registers: int, blocks: int) -> None:
    assert blocks_per_unit(threads, registers, 0, 2048, 32, 65536, 233472, 128, 1024) == blocks


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
