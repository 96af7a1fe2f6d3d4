"""Modules of KernelBench are made smaller outside of their classes alone, and each is told as right, refused or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.conformance import kernelbench
from experiments.conformance.cases import Outcome, apart

MODULE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear, self.scale = nn.Linear(features, 300), 1000

    def forward(self, x):
        return self.linear(x).relu() * self.scale

batch_size, features = 0, 4096
batch_size = 128

def get_inputs():
    return [torch.rand(batch_size, features)]

def get_init_inputs():
    return [features]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for level, number in (("level1", 10), ("level1", 9), ("level3", 1)):
        (tmp_path / level).mkdir(exist_ok=True)
        (tmp_path / level / f"{number}_Module.py").write_text(MODULE)
    return tmp_path


def test_numbers_outside_of_classes_are_halved(folder: Path) -> None:
    case = kernelbench.case_of(next(kernelbench.files(folder)), 64)
    assert [tuple(one.shape) for one in case.inputs] == [(2, 64)]
    assert case.module.linear.weight.shape == (300, 64) and case.module.scale == 1000


def test_modules_come_by_level_and_number(folder: Path) -> None:
    found = [kernelbench.name_of(file) for file in kernelbench.files(folder)]
    assert found == ["level1/9_Module", "level1/10_Module", "level3/1_Module"]


@pytest.mark.thorough
def test_a_limit_at_which_a_module_does_not_run_is_passed_over(folder: Path) -> None:
    file = folder / "level1" / "9_Module.py"
    file.write_text(MODULE.replace("return [features]", "return [100]"))
    assert kernelbench.outcome(file).said.startswith("by torch too: RuntimeError")
    file.write_text(MODULE.replace("4096", "100").replace("return [features]", "return [max(features, 100)]"))
    assert kernelbench.outcome(file) == Outcome("level1/9_Module", "right")


@pytest.mark.thorough
def test_what_ends_a_process_is_an_error_and_a_folder_without_modules_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "level1" / "9_Module.py"
    file.write_text("import os; os._exit(3)")
    assert apart(kernelbench.MODULE, "9", str(file)) == Outcome("9", "error", "ended")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit):
        kernelbench.main([str(tmp_path / "empty")])
    assert "expected the folder KernelBench of a clone" in capsys.readouterr().err
