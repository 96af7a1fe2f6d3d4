"""Stage `networks`: what is drawn beforehand is opened, run and compared; a network that fails is a row."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from experiments.common.journal import read_rows  # noqa: E402
from experiments.device.archive import networks as archive  # noqa: E402
from experiments.device.context import Context  # noqa: E402
from experiments.device.stages import networks  # noqa: E402
from experiments.networks import attention, suite  # noqa: E402
from gensor_gym.codegen.runtime import cuda  # noqa: E402
from gensor_gym.measure.emulator.emulator import EmulatedKernels  # noqa: E402
from tests.support import networks_cupy  # noqa: E402


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of two small networks, the schedules of one of which are not to be read, and a machine that answers."""
    small = suite.Workload(lambda: attention.mlp((6, 10, 4)), ((6,),))
    monkeypatch.setattr(suite, "SUITE", {"small": small, "broken": small})
    monkeypatch.setattr(archive, "NAMES", ("broken", "small"))
    archive.draw("h100", tmp_path)
    whole = archive.read(tmp_path)
    whole["networks"]["broken"]["schedules"][0] = "no schedule"
    monkeypatch.setattr(archive, "read", lambda folder: whole)
    programs: dict[str, EmulatedKernels] = {}

    def loaded(kernel: Any, cupy: Any) -> Any:
        return type("Module", (), {"get_function": lambda _, entry: networks_cupy.Launching(kernel, entry, programs)})()

    monkeypatch.setitem(sys.modules, "cupy", networks_cupy.module())
    monkeypatch.setattr(cuda, "_LOADED", {})
    monkeypatch.setattr(cuda, "_load_module", loaded)
    monkeypatch.setattr(networks, "compile_together", lambda kernels: None)
    monkeypatch.setattr(networks, "_timer", lambda call: lambda calls: 2.0 * calls * len([call()]))
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda self: self)
    monkeypatch.setattr(torch, "compile", lambda module, dynamic: module)
    return tmp_path


def test_networks_are_compared_and_a_failure_is_a_row(drawn: Path, tmp_path: Path) -> None:
    context = Context(str(tmp_path), str(tmp_path), "one", 600.0, "h100", 0)
    said = networks.run(context)
    rows = {row["key"]: row for row in read_rows(tmp_path / networks.FILE)}
    assert list(rows) == ["broken", "small", "broken compiled", "small compiled"]
    assert "no schedule" in rows["broken"]["error"] and set(said["failed"]) == {"broken", "broken compiled"}  # type: ignore[call-overload]
    row = rows["small"]
    assert row["kernels"] == 2 and row["launches"] >= 2 and row["model_s"] > 0
    assert 0 < row["errors"][networks.OURS] < 1e-5 and row["errors"][networks.FLOAT32] < 1e-5
    assert {name: len(values) for name, values in row["samples"].items()} == dict.fromkeys(
        (networks.OURS, networks.FLOAT32, networks.DEFAULT), networks.ROUNDS
    )
    assert np.median(row["samples"][networks.OURS]) == pytest.approx(1.0), "a launch of the graph takes a second here"
    assert said["over_ours"]["small"] == pytest.approx(  # type: ignore[index]
        {networks.FLOAT32: 2.0, networks.DEFAULT: 2.0, networks.COMPILED: 2.0}
    )
    assert networks.run(context) == said, "rows that are there are not made again"


def test_a_wrong_network_is_seen() -> None:
    reference = torch.ones(2, 3, dtype=torch.float64)
    assert networks.distance(np.ones((2, 3), np.float32), reference) == 0.0
    assert networks.distance((torch.ones(2, 3), torch.full((2, 3), 1.5)), (reference, reference)) == 0.5
