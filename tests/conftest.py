"""What every test shares: which tests this machine can run, and the option that records golden files."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gensor_gym.graph.compiling.early import waiting
from gensor_gym.hardware import probe
from gensor_gym.measure.emulator import emulator
from gensor_gym.measure.stats import others
from tests.support import kept_compiler
from tests.support.kept import KEEPING, KEPT

pytest_plugins = [f"tests.support.{name}" for name in ("both_ends", "coarse_figures", "quick_kernels", "until")]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this project."""
    parser.addoption("--update-golden", action="store_true", help="record the golden files anew (see CONTRIBUTING.md)")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be recorded anew."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session", autouse=True)
def kept_emulations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A kernel that the emulator has compiled before is not compiled again, and its headers are compiled once."""
    kept_compiler.forget(KEPT)
    plain = emulator.find_cxx
    names = [f"{name}.h" for name in ("emulator", "emulator_mma", "emulator_wgmma")]
    options = (*emulator._OPTIONS, "-DEMULATOR_WARP=32", f"-I{emulator.HEADER.parent}")
    headers = cache(lambda: kept_compiler.headers(plain(), options, tmp_path_factory.mktemp("headers"), names))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emulator, "find_cxx", lambda: (*KEEPING, *plain(), *headers()))
        yield


@pytest.fixture(scope="session", autouse=True)
def functions_are_waited_for() -> Iterator[None]:
    """Both cores have tests to run: a process that compiles beside them would take from these."""
    with waiting():
        yield


@pytest.fixture(scope="session", autouse=True)
def tests_beside_are_not_told_of() -> Iterator[None]:
    """A search on a machine whose cores others use warns: here of the tests on the other core."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(others, "CORES", float("inf"))
        yield


@pytest.fixture(scope="session", autouse=True)
def machine_is_measured_once() -> Iterator[None]:
    """Tests on the other core disturb each try alike; figures of a busy machine are measured again after ten minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "TRIES", 1)
        yield


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Commands set PyTorch's threads for their process; tests after one that calls such a command would wait on cores in use."""
    torch = sys.modules.get("torch")
    if hasattr(torch, "set_num_threads"):
        torch.set_num_threads(1)


def pytest_collection_finish() -> None:
    """The garbage collector never looks through what is there by now, and more seldom through the rest: a tenth of all time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `cuda` where there is no NVIDIA device. The harness must not open one to find out."""
    if Path("/dev/nvidiactl").exists():
        return
    skip = pytest.mark.skip(reason="no NVIDIA device")
    for item in items:
        if item.get_closest_marker("cuda") is not None:
            item.add_marker(skip)
