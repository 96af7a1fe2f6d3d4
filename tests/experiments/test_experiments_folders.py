"""A folder of results that cannot be written ends every program of `experiments` with one line, before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from agents.cli.arguments import compose
from agents.runs.files import make_folder
from agents.runs.jobs import Jobs
from experiments.benches.bench import bench
from experiments.device import lease
from experiments.tables.reproduce import reproduce
from gensor_gym.measure.analytic import AnalyticBackend
from gensor_gym.measure.native import cpu_backend


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """A path below a file: not even root can make it a folder."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "below"


def test_folders_are_made(tmp_path: Path, nowhere: Path) -> None:
    assert make_folder(str(tmp_path / "a" / "b")) == make_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert list((tmp_path / "a" / "b").iterdir()) == []
    for wrong in (nowhere, nowhere.parent):
        with pytest.raises(ValueError, match=f"^folder {wrong} cannot be written: .*; name another one$"):
            make_folder(wrong)


def test_every_program_names_the_folder(tmp_path: Path, nowhere: Path) -> None:
    store = tmp_path / "trials.sqlite"
    for call in (
        lambda: Jobs(AnalyticBackend(), store, nowhere),
        lambda: Jobs(cpu_backend(), nowhere / "trials.sqlite", tmp_path / "out"),
        lambda: reproduce(OmegaConf.create({"table": "gensor_operators", "output": str(nowhere)})),
        lambda: bench(compose(["suite=env", f"output={nowhere}"], "bench")),
        lambda: lease.run(nowhere, 1.0, "h200", 0),
    ):
        with pytest.raises(ValueError, match=f"folder {nowhere} cannot be written"):
            call()
