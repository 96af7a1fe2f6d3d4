"""Energy of trials: RAPL's counters are summed over packages and turns; without them nothing is recorded, and nothing is said."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest

from gensor_gym import operators
from gensor_gym.codegen.build import generate
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.answers.expectation import ExpectationCache
from gensor_gym.measure.devices.cpu import CpuDevice
from gensor_gym.measure.devices.energy import Rapl, metered
from gensor_gym.measure.devices.nvml import Nvml
from gensor_gym.measure.measurement import Status
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
    assert meter.joules() is None and metered(meter.joules, lambda: 3) == (3, {})


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


def test_a_trial_records_what_it_used(monkeypatch: pytest.MonkeyPatch) -> None:
    op, device = operators.gemm(m=8, n=8, k=8), CpuDevice()
    kernel = generate(op, ConstructionGraph(op, "host").initial(), "host")
    request = TrialRequest(Built(kernel, build_c(kernel).path), 1, 0.0)
    for readings, known in (((1.0, 1.5), {"energy_j": 0.5}), ((None, None), {})):
        told = iter(readings)
        monkeypatch.setattr(device, "joules", lambda told=told: next(told))
        found = run_trial(device, ExpectationCache(device.draws), request, lambda stage: None)
        assert found.status is Status.OK and found.conditions.get("energy_j") == known.get("energy_j")
        assert ("energy_s" in found.conditions) == bool(known)
        assert found.conditions.get("energy_s", 0.0) <= 60.0  # type: ignore[operator]
