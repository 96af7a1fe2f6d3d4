"""Policies and trainings of a moment: what is trained on and judged by, and the curves that are left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents.cli.arguments import compose
from agents.learners.loading import save_policy
from agents.learners.registry import get_learner
from agents.learners.stored import POLICY, save_tensors
from agents.policies.training_tasks import bound
from agents.training.train import settings_of
from agents.training.trainings import training_of
from gensor_gym.graph.tables.layout import LAYOUT_VERSION

GEMM = "gemm(m=4, n=16, k=4)"
GEMV = "gemv(m=16, k=8)"
DEPTHWISE = "depthwise_conv2d(n=1, c=2, h=4, w=4, r=3, s=3, padding=1)"
SMALL_WALKS = {"walkers": 2, "steps": 8, "refiners": 2, "refine_steps": 4, "descents": 2}


def make_columns(folder: Path, seed: int) -> None:
    """As `make_policy`, one that writes programs column by column."""
    import torch

    from agents.columns.network import ColumnNetwork

    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    save_tensors(folder / POLICY, ColumnNetwork(8).state_dict())
    _write_card(folder, seed, "columns", {"width": 8})


def make_policy(folder: Path, seed: int) -> None:
    """A policy with the weights that it begins with, and its card."""
    from gensor_gym.env.sb3 import make_sb3

    envs = make_sb3(num_envs=2, operator=GEMM, hardware="h200", space="gensor")
    folder.mkdir(parents=True)
    settings = {"net_arch": [64, 64], "learning_rate": 3e-4}
    save_policy(folder / POLICY, get_learner("ppo").make(settings, envs, seed))
    _write_card(folder, seed, "ppo", settings)


def _write_card(folder: Path, seed: int, agent: str, settings: dict) -> None:
    """What the study reads of a card."""
    card = {
        "agent": agent, "layout": LAYOUT_VERSION, "operators": "split/v1/train",
        "sees": training_of(agent).sees,
        "training_seconds": 10.0 + seed, "training_steps": 1000,
        "config": {"seed": seed, "agent": settings, "env": {"hardware": "h200", "space": "gensor"}},
    }  # fmt: skip
    card |= bound(card["operators"], card["config"]["env"])
    (folder / "card.json").write_text(json.dumps(card))


OPERATORS = ["gemm(m=96, n=80, k=64)", "gemv(m=80, k=64)"]
HELD_OUT = ["gemm(m=64, n=48, k=40)"]


def configured(*words: str) -> dict[str, Any]:
    """Settings by words of `train`, with two small operators to train on and one that is held out."""
    config = settings_of(compose(list(words), "train"))
    return config | {"operators": OPERATORS, "eval_operators": HELD_OUT}


def curves(folder: Path) -> tuple[str, str]:
    """Of what was learned and of validation."""
    return (folder / "curve.jsonl").read_text(), (folder / "validation.jsonl").read_text()
