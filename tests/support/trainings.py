"""Trainings of a moment: what is trained on and judged by, and the curves that are left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents.cli.arguments import compose
from agents.training.train import settings_of

OPERATORS = ["gemm(m=96, n=80, k=64)", "gemv(m=80, k=64)"]
HELD_OUT = ["gemm(m=64, n=48, k=40)"]


def configured(*words: str) -> dict[str, Any]:
    """Settings by words of `train`, with two small operators to train on and one that is held out."""
    config = settings_of(compose(list(words), "train"))
    return config | {"operators": OPERATORS, "eval_operators": HELD_OUT}


def curves(folder: Path) -> tuple[str, str]:
    """Of what was learned and of validation."""
    return (folder / "curve.jsonl").read_text(), (folder / "validation.jsonl").read_text()
