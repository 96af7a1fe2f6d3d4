"""Use of trials besides time: what can be read is recorded, observed and a second objective; else nothing is said."""

from __future__ import annotations

import ctypes
import math
import os
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen.build import generate
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.reward import final_reward
from gensor_gym.env.used import UseOfPrograms, used_per_call
from gensor_gym.env.writing.env import WriteEnv
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.expectation import ExpectationCache
from gensor_gym.measure.devices.cpu import CpuDevice
from gensor_gym.measure.devices.energy import METERS, Rapl, energy, metered
from gensor_gym.measure.devices.nvml import Nvml
from gensor_gym.measure.isolation import counters
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import cpu_backend
from gensor_gym.measure.workers.builders import build_c
from gensor_gym.measure.workers.requests import Built, TrialRequest
from gensor_gym.measure.workers.trial import run_trial


def domain(place: Path, name: str, words: str, energy: int) -> Path:
    """A domain of the power capping framework, as Linux shows it."""
    folder = place / "intel-rapl" / name
    folder.mkdir(parents=True)
    for file, text in (("name", words), ("energy_uj", energy), ("max_energy_range_uj", 1_000_000)):
        (folder / file).write_text(f"{text}\n")
    return folder


def test_packages_are_summed_and_their_counters_begin_again(tmp_path: Path) -> None:
    first, second = (domain(tmp_path, f"intel-rapl:{number}", f"package-{number}", 900_000) for number in range(2))
    domain(tmp_path, "intel-rapl:2", "psys", 5_000_000)
    meter = Rapl(tmp_path)
    assert meter.joules() == pytest.approx(1.8)
    (first / "energy_uj").write_text("100000\n")  # past its range of one joule
    assert meter.joules() == pytest.approx(2.0)
    (second / "energy_uj").write_text("950000\n")
    assert meter.joules() == pytest.approx(2.05)


@pytest.mark.parametrize("text", [None, "", "many"])
def test_what_cannot_be_read_is_none(tmp_path: Path, text: str | None) -> None:
    assert Rapl(tmp_path / "none").joules() is None
    folder = domain(tmp_path, "intel-rapl:0", "package-0", 1)
    meter = Rapl(tmp_path)
    (folder / "energy_uj").unlink() if text is None else (folder / "energy_uj").write_text(text)
    assert meter.joules() is None and metered(lambda: energy(meter.joules()), lambda: 3) == (3, {})


def test_a_gpu_says_its_energy_in_joules() -> None:
    def total(handle: ctypes.c_void_p, place: ctypes._Pointer) -> int:
        place._obj.value = 2500  # type: ignore[attr-defined]
        return 0

    meter = Nvml.__new__(Nvml)
    meter._handle, meter._library = ctypes.c_void_p(), None
    assert meter.joules() is None
    meter._library = SimpleNamespace(nvmlDeviceGetTotalEnergyConsumption=total)  # type: ignore[assignment]
    assert meter.joules() == 2.5
    meter._library = SimpleNamespace(nvmlDeviceGetTotalEnergyConsumption=lambda *_: 3)  # type: ignore[assignment]
    assert meter.joules() is None


def trial_of(device: CpuDevice) -> Measurement:
    """Of an unscheduled product, in this process."""
    op = operators.gemm(m=8, n=8, k=8)
    kernel = generate(op, ConstructionGraph(op, "host").initial(), "host")
    request = TrialRequest(Built(kernel, build_c(kernel).path), 1, 0.0)
    return run_trial(device, ExpectationCache(device.draws), request, lambda stage: None)


def test_a_trial_records_what_it_used(monkeypatch: pytest.MonkeyPatch) -> None:
    device = CpuDevice()
    first, last = {"energy_j": 1.0, "cycles": 3.0}, {"energy_j": 1.5, "cycles": 9.0, "instructions": 4.0}
    for readings, known in (((first, last), {"energy_j": 0.5, "cycles": 6.0}), (({}, {}), {}), ((first, {}), {})):
        told = iter(readings)
        monkeypatch.setattr(device, "meters", lambda told=told: next(told))
        found = trial_of(device)
        assert found.status is Status.OK
        assert {name: found.conditions[name] for name in METERS if name in found.conditions} == known
        assert ("metered_s" in found.conditions) == bool(known)
        assert found.conditions.get("metered_s", 0.0) <= 60.0  # type: ignore[operator]


def test_counters_that_the_machine_refuses_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "EVENTS", {"cycles": (99, 99)})
    assert counters.opened() == "" and counters.Counters("").read() == {}
    read, write = os.pipe()
    os.close(write)
    assert counters.Counters(f"cycles={read}").read() == {}  # it ends before a whole reading
    os.close(read)
    assert counters.Counters(f"cycles={read}").read() == {}  # it is closed


@pytest.mark.parametrize(("running", "known"), [(50, {"cycles": 200.0}), (0, {})])
def test_an_event_that_was_counted_for_a_part_of_the_time_is_scaled_up(running: int, known: dict[str, float]) -> None:
    read, write = os.pipe()
    os.write(write, struct.pack("@QQQ", 100, 100, running))
    assert counters.Counters(f"cycles={read}").read() == known
    os.close(read)
    os.close(write)


def test_counters_count_this_process_and_the_threads_that_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """By Linux's own clock of tasks, in nanoseconds, because this machine may have no counters of its processor."""
    monkeypatch.setattr(counters, "EVENTS", {"cycles": (1, 1)})
    if not (text := counters.opened()):
        pytest.skip("this system refuses perf events")
    meter = counters.Counters(text)

    def spin() -> None:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass

    before = meter.read()["cycles"]
    thread = threading.Thread(target=spin)
    thread.start()
    thread.join()
    assert meter.read()["cycles"] - before >= 0.04e9
    os.close(int(text.partition("=")[2]))


def test_a_worker_opens_its_counters_before_it_gives_up_its_rights(tmp_path: Path) -> None:
    """It has those that this process would have, and reads them behind its filter."""
    with closing(cpu_backend()) as backend:
        op = operators.gemm(m=8, n=8, k=8)
        (found,) = backend.measure(op, [ConstructionGraph(op, "host").initial()], hardware.get("host"))
    expected = [part.partition("=")[0] for part in counters.opened().split()]
    assert found.status is Status.OK and [name for name in counters.EVENTS if name in found.conditions] == expected


MEASURED = Measurement(Status.OK, (1e-3,), {"metered_s": 0.1, "energy_j": 5.0, "cycles": 3e8})


def test_use_of_a_call_is_its_part_of_sampling() -> None:
    assert used_per_call(MEASURED) == pytest.approx({"energy_j": 0.05, "cycles": 3e6})
    assert used_per_call(Measurement(Status.OK, (1e-3,))) == {}
    assert used_per_call(Measurement(Status.CRASHED, (), MEASURED.conditions)) == {}


class Fixed:
    """A backend whose programs all have one measurement."""

    name = "fixed"

    def __init__(self, measurement: Measurement) -> None:
        self.measurement = measurement

    def device(self, hw: Hardware) -> str:
        return "a stand-in"

    def digest(self, op: object, schedule: object, hw: Hardware) -> str:
        return repr(schedule)

    def measure(self, op: object, schedules: Sequence[object], hw: Hardware) -> list[Measurement]:
        return [self.measurement for _ in schedules]

    def close(self) -> None:
        """Nothing runs."""


def ended(measurement: Measurement, **given: Any) -> tuple[Any, float, dict[str, Any]]:
    """Observation, reward and info of an episode that stops at once."""
    env = UseOfPrograms(ConstructEnv("gemm(m=64, n=64, k=64)", "h200", Fixed(measurement), step_cost=0.0), **given)
    observation, _ = env.reset(seed=0)
    assert observation in env.observation_space and not observation["used"].any()
    observation, reward, _, _, info = env.step(0)
    assert observation in env.observation_space
    return observation, reward, info


def test_use_is_observed_and_is_a_second_objective() -> None:
    observation, plain, info = ended(MEASURED)
    assert info["used"] == used_per_call(MEASURED)
    assert observation["used"].tolist() == pytest.approx([1.0, math.log10(0.5), math.log10(3.0), 0.0, 0.0])
    floor = ConstructionGraph(operators.gemm(m=64, n=64, k=64), "h200").floor
    assert plain == 0.0 == final_reward(floor, 1e-3)
    fast = Measurement(Status.OK, (floor,), {"metered_s": 0.1, "energy_j": 20.0})
    _, one, _ = ended(fast)
    _, half, _ = ended(fast, weight=0.5)
    assert one - half == pytest.approx(0.5 * math.log(2.0))  # 200 W are twice the time at 100 J a second
    _, half, _ = ended(fast, weight=0.5, per_second=400.0)
    assert one - half == pytest.approx(-0.5 * math.log(2.0))


def test_without_readings_the_reward_is_that_of_time() -> None:
    observation, reward, info = ended(Measurement(Status.OK, (1e-6,)), weight=1.0)
    assert "used" not in info and not observation["used"].any()
    assert reward == ended(Measurement(Status.OK, (1e-6,)))[1] > 0.0


def test_an_illegal_program_has_not_the_use_of_the_one_before() -> None:
    env = UseOfPrograms(WriteEnv("gemm(m=512, n=512, k=512)", "cascade_lake", Fixed(MEASURED)), weight=1.0)
    for place, status in ((0, "OK"), (-1, "ILLEGAL")):
        env.reset(seed=0)
        for decision in env.unwrapped.tasks.decisions[0]:  # type: ignore[attr-defined]
            observation, reward, _, _, info = env.step(range(len(decision.options))[place])
        assert info["status"] == status and ("used" in info) == (status == "OK")
    assert reward == 0.0 and observation["used"][0] == 1.0


@pytest.mark.parametrize("given", [{"objective": "joules"}, {"weight": 2.0}, {"per_second": 0.0}])
def test_bad_arguments_are_named(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        UseOfPrograms(ConstructEnv(hardware="h200"), **given)
    with pytest.raises(ValueError, match="measures"):
        UseOfPrograms(ConstructEnv(hardware="h200"), weight=0.5)
