"""The scripts of docs/examples that want a framework of an extra of their own: TorchRL, RLlib."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "docs" / "examples"
pytestmark = pytest.mark.thorough


def test_ppo_of_torchrl_learns_with_masks() -> None:
    pytest.importorskip("torchrl", reason="extra torchrl: pip install -c constraints.txt -e '.[lab,torchrl]'")
    curve = runpy.run_path(str(EXAMPLES / "torchrl_ppo.py"))["train"](total_steps=6144)
    assert len(curve) >= 4 and curve[-1] > curve[0] + 1.0


def test_ppo_of_rllib_learns() -> None:
    pytest.importorskip("ray.rllib.algorithms.ppo", reason="extra rllib: pip install -e '.[lab,rllib]', without constraints.txt")
    curve = runpy.run_path(str(EXAMPLES / "rllib_ppo.py"))["train"](total_steps=12_000)
    assert len(curve) >= 8 and curve[-1] > curve[0] + 0.3
