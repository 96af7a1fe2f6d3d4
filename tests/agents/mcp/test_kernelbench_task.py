"""A file in KernelBench's format is a task of `Kernel-v0` if one operator computes its module."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from agents.mcp.kernelbench import operator_of  # noqa: E402
from gensor_gym.env.kernel.env import KernelEnv  # noqa: E402

FILE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.linear = nn.Linear(inside, outside)

    def forward(self, x):
        return {body}


def get_inputs():
    return [torch.rand(64, 48)]


def get_init_inputs():
    return [48, 32]
"""


def written(folder: Path, body: str) -> Path:
    """A file whose module returns `body`."""
    (folder / "task.py").write_text(FILE.format(body=body))
    return folder / "task.py"


def test_a_layer_is_a_task(tmp_path: Path) -> None:
    """The operator computes what the module does, with its weights as inputs."""
    op = operator_of(written(tmp_path, "torch.relu(self.linear(x))"))
    assert str(op) == "gemm(m=64, n=32, k=48)+bias+relu"
    layer, x = torch.nn.Linear(48, 32), torch.rand(64, 48)
    weights = layer.weight.detach().numpy().T, layer.bias.detach().numpy()
    expected = torch.relu(layer(x)).detach().numpy()
    np.testing.assert_allclose(op.reference(x.numpy(), *weights), expected, rtol=1e-4, atol=1e-5)
    assert "Make a fast kernel of gemm(m=64, n=32, k=48)+bias+relu" in KernelEnv(op).reset(seed=0)[0]


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs 2 kernels"):
        operator_of(written(tmp_path, "torch.softmax(self.linear(x), -1) @ torch.ones(32, 8)"))
    with pytest.raises(ValueError, match="needs 1 kernels .*expected one of conv2d"):
        operator_of(written(tmp_path, "torch.softmax(x, -1)"))
    (tmp_path / "task.py").write_text("class Model: pass")
    with pytest.raises(ValueError, match="has no get_inputs, get_init_inputs"):
        operator_of(tmp_path / "task.py")


def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gensor_gym.frontends.torch_export", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"needs torch: pip install 'gensor_gym\[lab\]'"):
        operator_of(tmp_path / "none.py")
