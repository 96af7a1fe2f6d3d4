"""Stage `networks`: what is drawn beforehand is opened, run and compared; a network that fails is a row."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from agents.runs.journal import read_rows  # noqa: E402
from experiments.device.archive import networks as archive  # noqa: E402
from experiments.device.context import Context  # noqa: E402
from experiments.device.stages import networks  # noqa: E402
from experiments.networks import attention, suite  # noqa: E402
from gensor_gym.codegen.runtime import cuda  # noqa: E402
from gensor_gym.measure.emulator.emulator import EmulatedKernels  # noqa: E402
from tests.support import networks_cupy  # noqa: E402


class Small(torch.nn.Module):
    """A table of rows, a normalisation and a product, with two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.last = torch.nn.Embedding(9, 12), torch.nn.LayerNorm(12), torch.nn.Linear(12, 4)

    def forward(self, ids: Any) -> Any:
        found = self.norm(self.table(ids))
        return found, torch.relu(self.last(found))


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of two small networks, the schedules of one of which are not to be read, and a machine that answers."""
    broken, small = suite.Workload(lambda: attention.mlp((6, 10, 4)), ((6,),)), suite.Workload(Small, (suite.Ids((5,), 9),))
    monkeypatch.setattr(suite, "SUITE", {"broken": broken, "small": small})
    monkeypatch.setattr(archive, "NAMES", ("broken", "small"))
    archive.draw("h100", tmp_path, "a revision")
    assert archive.is_of(tmp_path, "a revision") and not archive.is_of(tmp_path, "another")
    whole = archive.read(tmp_path)
    whole["networks"]["broken"]["schedules"] = dict.fromkeys(whole["networks"]["broken"]["schedules"], "no schedule")
    lacking = whole["networks"]["small"]["schedules"]
    del lacking[next(iter(lacking))]  # another version of torch may export another piece
    monkeypatch.setattr(archive, "read", lambda folder: whole)
    programs: dict[str, EmulatedKernels] = {}

    monkeypatch.setitem(sys.modules, "cupy", networks_cupy.module())
    monkeypatch.setattr(cuda, "_LOADED", {})
    monkeypatch.setattr(cuda, "_load_module", networks_cupy.loader(programs))
    monkeypatch.setattr(cuda, "launch_dependent", networks_cupy.launch_dependent)
    monkeypatch.setattr(networks, "compile_together", lambda kernels: None)
    monkeypatch.setattr(networks, "_timer", lambda call: lambda calls: 2.0 * calls * len([call()]))
    monkeypatch.setattr(networks, "WARM", 0.0)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda self: self)
    monkeypatch.setattr(torch, "compile", lambda module, dynamic: module)
    return tmp_path


def test_networks_are_compared_and_a_failure_is_a_row(drawn: Path, tmp_path: Path) -> None:
    context = Context(str(tmp_path), str(tmp_path), "one", 600.0, "h100", 0)
    said = networks.run(context)
    rows = {row["key"]: row for row in read_rows(tmp_path / networks.FILE)}
    stages = "", " compiled", " dependent"
    assert list(rows) == [f"{name}{stage}" for stage in stages for name in ("broken", "small")]
    assert "no schedule" in rows["broken"]["error"] and set(said["failed"]) == {f"broken{stage}" for stage in stages}  # type: ignore[call-overload]
    assert rows["small dependent"]["distance"] == 0.0
    row = rows["small"]
    assert row["kernels"] == 3 and row["launches"] >= row["kernels"] and row["model_s"] > 0
    assert 0 < row["errors"][networks.OURS] < 1e-5 and row["errors"][networks.FLOAT32] < 1e-5
    assert {name: len(values) for name, values in row["samples"].items()} == dict.fromkeys(
        (networks.OURS, networks.FLOAT32, networks.DEFAULT), networks.ROUNDS
    )
    ours = np.median(row["samples"][networks.OURS])  # a launch of a graph takes a second here, however many calls it has
    assert 0 < ours <= 1.0
    others = (networks.FLOAT32, networks.DEFAULT, networks.COMPILED)
    over = dict(said["over_ours"]["small"])  # type: ignore[index]
    assert over.pop(networks.DEPENDENT) > 0 and over == pytest.approx(dict.fromkeys(others, 2.0 / ours))
    assert said["wrong"] == []
    assert networks.run(context) == said, "rows that are there are not made again"


def test_a_wrong_network_is_seen() -> None:
    reference = torch.ones(2, 3, dtype=torch.float64)
    assert networks.distance(np.ones((2, 3), np.float32), reference) == 0.0
    assert networks.distance((torch.ones(2, 3), torch.full((2, 3), 1.5)), (reference, reference)) == 0.5
    assert np.isnan(networks.distance((torch.ones(2, 3), torch.full((2, 3), np.nan)), (reference, reference)))
    with pytest.raises(ValueError, match=r"of shape \(3,\), expected \(2, 3\)"):
        networks.distance(torch.ones(3), reference)


def test_a_wrong_network_has_no_speed(tmp_path: Path) -> None:
    samples = {networks.OURS: [1.0], networks.DEFAULT: [3.0]}
    rows = [
        {"key": name, "run": "one", "network": name, "samples": samples, "errors": {networks.OURS: error}}
        for name, error in (("right", 1e-6), ("far", 0.1), ("nan", float("nan")))
    ]
    (tmp_path / networks.FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = networks.digest(Context(str(tmp_path), "", "one", 1.0))
    assert said["wrong"] == ["far", "nan"] and said["over_ours"] == {"right": {networks.DEFAULT: 3.0}}
