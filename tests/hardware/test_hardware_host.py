"""The host: what the system describes, what is measured, and the file that keeps it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.cache.folders import cache_dir, make_cache_dir
from gensor_gym.cache.jsons import read_json, write_json
from gensor_gym.codegen.runtime.compile import compile_text
from gensor_gym.construction import ConstructionGraph
from gensor_gym.hardware import compiler, cpuinfo, host, probe
from gensor_gym.hardware.described import from_json, to_json
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.native import cpu_backend
from gensor_gym.measure.stats.timing import TimingRules

X86 = """processor : 0
model name : Some CPU
flags : fpu sse2 avx2 fma avx512f

processor : 1
model name : Another
flags : fpu
"""
ARM = """processor : 0
Features : fp asimd asimddp
CPU implementer : 0x41
CPU part : 0xd0c
"""
FIGURES = {"clock": 2e9, "float32": 1e11, "l1": 4e11, "l2": 2e11, "l3": 1e11, "dram": 2e10}
FIGURES |= {"l3_copied": 4e10, "l3_streamed": 1e10, "dram_copied": 7e9, "dram_streamed": 9e9, "l3_past": 4e11, "dram_past": 4e11}
QUIET = probe.Reading(FIGURES, 1.0)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that does not exist yet, and nothing remembered from other tests."""
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GENSOR_GYM_THREADS", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replace the measurement by fixed figures; the list holds the cores of each call."""
    calls: list[int] = []

    def fake(info: cpuinfo.CpuInfo, _compiler: compiler.Compiler) -> probe.Reading:
        calls.append(info.cores)
        return QUIET

    monkeypatch.setattr(probe, "run", fake)
    monkeypatch.setattr(probe, "TRIES", 3)  # of all tests together 1
    monkeypatch.setattr(probe, "find_compiler", lambda: compiler.Compiler(("none",), "gcc", "none"))
    return calls


def test_cpuinfo_of_x86_and_arm() -> None:
    model, flags = cpuinfo.parse_cpuinfo(X86)
    assert model == "Some CPU"
    assert cpuinfo.vector_unit(flags, "x86_64") == (16, 32)
    model, flags = cpuinfo.parse_cpuinfo(ARM)
    assert model == "implementer 0x41 part 0xd0c"
    assert cpuinfo.vector_unit(flags, "aarch64") == (4, 32)
    assert cpuinfo.vector_unit(frozenset({"avx2", "fma"}), "x86_64") == (8, 16)
    assert cpuinfo.vector_unit(frozenset({"sse2"}), "x86_64") == (4, 16)
    assert cpuinfo.parse_cpuinfo("")[0]


@pytest.mark.parametrize(
    ("text", "size"),
    [("48K", 49152), ("1M", 1048576), ("512", 512), ("", None), ("K", None), ("0K", None), ("x", None)],
)
def test_sizes(text: str, size: int | None) -> None:
    assert cpuinfo.parse_size(text) == size


def _write_cache(folder: Path, cpu: int, index: int, level: int, size: str, users: str, kind: str = "Unified") -> None:
    place = folder / f"cpu{cpu}" / "cache" / f"index{index}"
    place.mkdir(parents=True)
    texts = {"level": str(level), "size": size, "shared_cpu_list": users, "type": kind, "coherency_line_size": "128"}
    for name, text in texts.items():
        (place / name).write_text(text + "\n")


def test_caches_are_shares_of_a_core_and_the_last_level_a_sum(tmp_path: Path) -> None:
    for cpu in range(4):
        _write_cache(tmp_path, cpu, 0, 1, "32K", str(cpu), "Data")
        _write_cache(tmp_path, cpu, 1, 1, "64K", str(cpu), "Instruction")
        _write_cache(tmp_path, cpu, 2, 2, "2M", "0-1" if cpu < 2 else "2-3")
        _write_cache(tmp_path, cpu, 3, 3, "8M", "0,1" if cpu < 2 else "2,3")
    found, line = cpuinfo.caches(tmp_path, [0, 1, 2, 3])
    assert found == {1: 32 * 1024, 2: 1024 * 1024, 3: 16 * 1024 * 1024}
    assert line == 128
    assert cpuinfo.caches(tmp_path / "missing", [0]) == ({}, 64)


def test_a_control_group_limits_the_cores(tmp_path: Path) -> None:
    membership = tmp_path / "membership"
    membership.write_text("0::/job\n")
    assert cpuinfo.cgroup_quota(membership, tmp_path) is None
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "cpu.max").write_text("max 100000\n")
    assert cpuinfo.cgroup_quota(membership, tmp_path) is None
    (tmp_path / "job" / "cpu.max").write_text("150000 100000\n")
    assert cpuinfo.cgroup_quota(membership, tmp_path) == 1.5
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("50000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cpuinfo.cgroup_quota(membership, tmp_path) == 0.5


def test_threads_can_be_forced(monkeypatch: pytest.MonkeyPatch, counted: list[int]) -> None:
    monkeypatch.setenv("GENSOR_GYM_THREADS", "3")
    assert hardware.get("host").units == 3
    monkeypatch.setenv("GENSOR_GYM_THREADS", "1")
    assert hardware.get("host").units == 1
    assert counted == [3, 1]
    for wrong in ("0", "-1", "two", "1.5"):
        monkeypatch.setenv("GENSOR_GYM_THREADS", wrong)
        with pytest.raises(ValueError, match="GENSOR_GYM_THREADS"):
            hardware.get("host")


def test_measured_once_then_read(counted: list[int], own_cache: Path) -> None:
    info = cpuinfo.cpu_info()
    assert probe.measured(info) == QUIET
    assert probe.measured(info) == QUIET
    assert len(counted) == 1
    assert sorted(p.suffix for p in own_cache.iterdir()) == [".json", ".lock"]  # no temporary file is left
    assert probe.measured(replace(info, cores=info.cores + 1)) == QUIET
    assert len(counted) == 2


@pytest.mark.parametrize("broken", ["", "{", "[]", "{}", '{"version": 1, "figures": {"clock": -1}}', "\x00"])
def test_a_broken_file_is_measured_again(counted: list[int], own_cache: Path, broken: str) -> None:
    info = cpuinfo.cpu_info()
    probe.measured(info)
    path = probe.cache_path(info)
    path.write_text(broken)
    assert probe.measured(info) == QUIET
    assert len(counted) == 2
    assert json.loads(path.read_text())["figures"] == FIGURES


@pytest.mark.parametrize("value", [float("nan"), 0.0, "1e9", None])
def test_an_impossible_figure_is_measured_again(counted: list[int], value: object) -> None:
    info = cpuinfo.cpu_info()
    probe.measured(info)
    stored = json.loads(probe.cache_path(info).read_text())
    stored["figures"]["dram"] = value
    probe.cache_path(info).write_text(json.dumps(stored))
    assert probe.measured(info) == QUIET
    assert len(counted) == 2


def test_without_a_compiler_the_figures_are_marked_as_estimates(
    monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    def none() -> compiler.Compiler:
        raise RuntimeError("no C compiler found")

    monkeypatch.setattr(probe, "find_compiler", none)
    hw = hardware.get("host")
    assert "estimate" in hw.source["peak"] and "estimate" in hw.source["memory.dram.bandwidth"]
    assert not own_cache.exists()
    bandwidths = [m.bandwidth for m in hw.memory]
    assert bandwidths == sorted(bandwidths, reverse=True)


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="GENSOR_GYM_CACHE"):
        write_json(tmp_path / "file" / "x.json", {"a": 1})
    assert read_json(tmp_path / "file" / "x.json") is None


def test_the_cache_is_a_folder_that_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENSOR_GYM_CACHE", "")
    assert cache_dir() == Path.home() / ".cache" / "gensor_gym"
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "new"))
    assert make_cache_dir("kernels") == tmp_path / "new" / "kernels" and (tmp_path / "new" / "kernels").is_dir()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "file"))
    with pytest.raises(ValueError, match=r"GENSOR_GYM_CACHE=.*file is a file: expected a folder"):
        hardware.get("host")
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(ValueError, match=r"cannot make .*below/kernels: .*; set \$GENSOR_GYM_CACHE"):
        compile_text("int x;", "native")
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "new"))
    monkeypatch.setattr(os, "access", lambda path, how: "new" not in str(path))  # as on a disk that is mounted to be read only
    with pytest.raises(ValueError, match=r"cannot make .*new/kernels: .* it cannot be written: .*; set \$GENSOR_GYM_CACHE"):
        make_cache_dir("kernels")


def test_hardware_of_the_host_is_what_was_described_and_measured(counted: list[int]) -> None:
    hw = hardware.get("host")
    info = cpuinfo.cpu_info()
    assert (hw.name, hw.kind, hw.arch, hw.units, hw.lanes) == ("host", "cpu", "native", info.cores, info.lanes)
    assert [m.name for m in hw.memory] == ["register", "l1", "l2", "l3", "dram"]
    assert hw.level("register").capacity == info.vector_registers * info.lanes * 4
    assert hw.level("dram").bandwidth == FIGURES["dram"]
    assert (hw.level("l3").copied, hw.level("dram").streamed) == (FIGURES["l3_copied"], FIGURES["dram_streamed"])
    assert hw.level("l2").copied == 0.0 and "measured" in hw.source["memory.l3.streamed"]
    assert hw.peak_of("float32") == FIGURES["float32"]
    assert "measured" in hw.source["peak"]
    pairs = "avx512_bf16" in info.flags
    assert hw.peak_of("bfloat16") == FIGURES["float32"] * (2 if pairs else 1)
    assert ("vdpbf16ps" in hw.source["peak"]) == pairs and hw.peak_of("float16") == FIGURES["float32"]
    tiles = {"bfloat16", "int8"} if {"amx_bf16", "amx_int8"} <= info.flags else set()
    assert set(dict(hw.tensor_peak)) == tiles and ("tensor_peak" in hw.source) == bool(tiles)
    assert hardware.get("host") == hw
    assert from_json(to_json(hw)) == hw and "streamed" not in to_json(hardware.get("cascade_lake"))


@pytest.mark.parametrize(("alone", "expected"), [(4e11, 1e10), (1e10, 8e9), (2e9, 1 / (1 / 4e10 + 1 / 2e9))])
def test_what_is_stored_past_the_caches_is_no_faster_than_reading_and_storing_apart(alone: float, expected: float) -> None:
    figures = FIGURES | {"l3": 4e10, "l3_streamed": 1e10, "l3_past": alone}
    hw = host.build(cpuinfo.cpu_info(), figures, "measured")
    assert hw.level("l3").streamed == pytest.approx(expected)


def test_tile_registers_are_found_by_the_flags() -> None:
    """16 clocks for 16 x 16 sums of 64 bytes each."""
    info = replace(cpuinfo.cpu_info(), cores=2, flags=frozenset({"amx_tile", "amx_bf16", "amx_int8"}))
    hw = host.build(info, FIGURES, "measured")
    assert dict(hw.tensor_peak) == {"bfloat16": 2 * FIGURES["clock"] * 1024, "int8": 2 * FIGURES["clock"] * 2048}
    assert host.build(replace(info, flags=frozenset({"amx_tile"})), FIGURES, "measured").tensor_peak == ()


def test_the_probe_measures_plausible_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_WINDOW", 0.05)
    info = replace(cpuinfo.cpu_info(), cores=1)
    reading = probe.run(info, compiler.find_compiler())
    figures = reading.figures
    assert 0 < reading.share < 1.1
    assert 5e8 < figures["clock"] < 8e9
    # At least one multiply-add of the detected width every other clock, at most four a clock.
    per_clock = figures["float32"] / figures["clock"] / (2 * info.lanes)
    assert 0.4 < per_clock < 4.1
    assert figures["l1"] > figures["dram"] > 1e8
    stores = [f"{level}_{how}" for level in ("l3", "dram") for how in ("copied", "streamed", "past")]
    assert all(1e8 < figures[name] < figures["l1"] for name in stores)


class Loaded:
    """Stands for the program on a machine with other work: each run has a share of the cores and figures in its measure."""

    def __init__(self, *shares: float) -> None:
        self.shares, self.runs = list(shares), 0

    def __call__(self, _info: cpuinfo.CpuInfo, _compiler: compiler.Compiler) -> probe.Reading:
        share = self.shares[min(self.runs, len(self.shares) - 1)]
        self.runs += 1
        return probe.Reading({name: value * share for name, value in FIGURES.items()}, share)


def dram(reading: probe.Reading | None) -> float:
    assert reading is not None
    return reading.figures["dram"] / FIGURES["dram"]


def test_figures_under_load_serve_for_a_while_and_are_measured_again(
    counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    info, now = cpuinfo.cpu_info(), [1e9]
    monkeypatch.setattr(probe.time, "time", lambda: now[0])
    busy = Loaded(0.4, 0.6, 0.5)
    monkeypatch.setattr(probe, "run", busy)
    reading = probe.measured(info)
    assert (dram(reading), reading.share, busy.runs) == (0.6, 0.6, probe.TRIES)  # type: ignore[union-attr]
    assert "60% of the cores" in hardware.get("host").source["peak"]
    now[0] += probe.RETRY - 1
    assert dram(probe.measured(info)) == 0.6 and busy.runs == probe.TRIES
    now[0] += 2
    worse = Loaded(0.2)
    monkeypatch.setattr(probe, "run", worse)
    assert dram(probe.measured(info)) == 0.6 and worse.runs == probe.TRIES  # the larger figures are kept
    now[0] += probe.RETRY + 1
    quiet = Loaded(1.0)
    monkeypatch.setattr(probe, "run", quiet)
    assert dram(probe.measured(info)) == 1.0 and quiet.runs == 1
    now[0] += 1e6
    assert dram(probe.measured(info)) == 1.0 and quiet.runs == 1


def test_the_first_quiet_run_ends_the_measuring(counted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Loaded(0.5, 0.95, 0.5)
    monkeypatch.setattr(probe, "run", runs)
    assert dram(probe.measured(cpuinfo.cpu_info())) == 0.95 and runs.runs == 2


def test_doubted_figures_are_measured_again_and_never_fall(counted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    info = cpuinfo.cpu_info()
    probe.doubt(info)  # nothing is kept yet
    probe.measured(info)
    probe.doubt(info)
    again = Loaded(0.95)
    monkeypatch.setattr(probe, "run", again)
    assert probe.measured(info) == probe.Reading(FIGURES, 0.95) and again.runs == 1
    assert probe.measured(info) == probe.Reading(FIGURES, 0.95) and again.runs == 1


@pytest.mark.thorough
def test_the_program_notices_that_it_does_not_have_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs on every CPU: several to each, so that the share is far from quiet however the system schedules."""
    monkeypatch.setattr(probe, "_WINDOW", 0.1)
    info, cpus = replace(cpuinfo.cpu_info(), cores=1), cpuinfo.usable_cpus()
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * len(cpus))]
    try:
        time.sleep(0.5)
        busy = probe.run(info, compiler.find_compiler(), memory=False)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert not busy.quiet


@pytest.mark.thorough
def test_a_correct_kernel_below_the_floor_has_the_figures_measured_again(
    counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = cpuinfo.cpu_info()
    rates = host.estimates(info)
    slow, fast = (probe.Reading({name: rate * share for name, rate in rates.items()}, 1.0) for share in (1e-6, 1e3))
    hw = host.build(info, slow.figures, "")
    runs = [slow, slow, fast]
    monkeypatch.setattr(probe, "run", lambda *_: runs.pop(0))
    assert probe.measured(info) == slow
    op = operators.gemm(64, 64, 64)
    backend = cpu_backend(TimingRules(budget=0.1, warmup=1e-3))
    schedule = ConstructionGraph(op, hw).random_schedule(np.random.default_rng(0))
    try:
        assert backend.measure(op, [schedule], replace(hw, name="other"))[0].status is Status.IMPLAUSIBLE
        assert len(runs) == 2, "figures of other machines do not count"
        for status in (Status.IMPLAUSIBLE, Status.OK):
            host.doubted.cache_clear()
            assert [backend.measure(op, [schedule], hw)[0].status for _ in range(2)] == [status] * 2
    finally:
        backend.close()
        host.doubted.cache_clear()
    assert not runs, "once a process"


def test_a_program_that_fails_is_reported() -> None:
    with pytest.raises(RuntimeError, match="compile the host probe"):
        probe.run(cpuinfo.cpu_info(), compiler.Compiler(("false",), "gcc", "none"))
    with pytest.raises(RuntimeError, match="compile the host probe"):
        probe.run(cpuinfo.cpu_info(), compiler.Compiler(("no_such_program",), "gcc", "none"))


def test_estimates_name_every_figure() -> None:
    assert tuple(host.estimates(cpuinfo.cpu_info())) == probe.FIGURES


def test_avx512_may_be_left_unused(counted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpuinfo, "parse_cpuinfo", lambda _: ("a processor", frozenset({"avx2", "fma", "avx512f", "avx512_vnni"})))
    wide = cpuinfo.cpu_info()
    monkeypatch.setenv(cpuinfo.NARROW, "1")
    narrow = cpuinfo.cpu_info()
    assert (wide.lanes, wide.arch, narrow.lanes, narrow.vector_registers) == (16, "native", 8, 16)
    assert probe.cache_path(wide) != probe.cache_path(narrow)
    host = hardware.get("host")
    assert (host.lanes, host.arch) == (8, "x86-64-v3") and "-march=x86-64-v3" in compiler.find_compiler().flags(host.arch, 8)
    monkeypatch.setenv(cpuinfo.NARROW, "yes")
    with pytest.raises(ValueError, match="GENSOR_GYM_AVX2='yes' must be 0 or 1"):
        cpuinfo.cpu_info()
    monkeypatch.setenv(cpuinfo.NARROW, "1")
    monkeypatch.setattr(cpuinfo, "parse_cpuinfo", lambda _: ("a processor", frozenset({"avx2", "fma"})))
    with pytest.raises(ValueError, match="no AVX-512 to leave unused"):
        cpuinfo.cpu_info()
