"""A policy of columns that sees the machine: its choices depend on the machine's constants, and it learns on several at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from agents.cli.arguments import compose  # noqa: E402
from agents.columns.choices import Choices  # noqa: E402
from agents.columns.learner import ColumnLearner  # noqa: E402
from agents.columns.network import ColumnNetwork  # noqa: E402
from agents.columns.policy import load_columns  # noqa: E402
from agents.training import columns as training  # noqa: E402
from agents.training.train import settings_of, write_card  # noqa: E402
from gensor_gym import hardware  # noqa: E402
from gensor_gym.construction import ConstructionGraph  # noqa: E402
from gensor_gym.hardware.drawn import drawn  # noqa: E402

GEMM = "gemm(m=96, n=80, k=64)"
SETTINGS: dict[str, Any] = {
    "name": "columns", "width": 8, "tasks": 2, "programs": 8, "best": 0.25, "learning_rate": 0.01,
    "final_learning_rate": 0.001, "entropy": 0.01, "final_entropy": 0.0, "machines": ["h200", "a100"],
}  # fmt: skip


def chances(net: ColumnNetwork, machine: Any) -> float:
    """Logarithm of the chance of the first choices."""
    choices = Choices(ConstructionGraph(GEMM, machine, "gensor"))
    return float(net(choices, np.zeros((1, len(choices.counts))))[1][0].detach())


def test_what_is_chosen_depends_on_the_machine_only_where_it_is_seen() -> None:
    near = hardware.get("h200")
    other = drawn([near], np.random.default_rng(0))  # the same limits, so the same columns
    torch.manual_seed(0)
    blind, seeing = ColumnNetwork(8), ColumnNetwork(8, machine=True)
    assert chances(blind, near) == chances(blind, other) and chances(seeing, near) != chances(seeing, other)


def test_it_learns_on_a_machine_for_every_operator_and_seconds_are_those_of_the_machine() -> None:
    rng = np.random.default_rng(0)
    machines = [drawn([hardware.get("h200"), hardware.get("a100")], rng, f"drawn_{i}") for i in range(3)]
    learner = ColumnLearner(SETTINGS, [ConstructionGraph(GEMM, machine, "gensor") for machine in machines], 160, 0)
    before = [part.clone() for part in learner.network.parameters()]
    for _ in range(3):
        assert 0.0 < learner.advance() < 8.0
    assert any((old != new).any() for old, new in zip(before, learner.network.parameters(), strict=True))
    for choices in learner.choices:
        chosen = np.zeros((8, len(choices.counts)), dtype=np.int64)
        assert learner.seconds(choices, chosen)[0] == choices.graph.latencies(choices.rows(chosen))[0]


@pytest.mark.thorough
def test_a_training_says_so_in_its_card_and_its_policy_is_read_with_it(tmp_path: Path) -> None:
    words = ["agent=columns", "+agent.machines=[h200,a100]", "agent.width=8", "agent.programs=4", "steps=64", "env.hardware=h200"]
    words += ["env.space=gensor", f"operators='{GEMM}'", "wandb.mode=disabled", f"output={tmp_path}", "agent.tasks=2"]
    config = settings_of(compose(words, "train"))
    from rich.console import Console

    learner, seconds, _ = training.learn(config, tmp_path, Console(quiet=True))
    write_card(config, tmp_path, seconds, learner.num_timesteps)
    assert [choices.graph.hardware.name for choices in learner.choices] == ["drawn_0"]
    assert json.loads((tmp_path / "card.json").read_text())["config"]["agent"]["machines"] == ["h200", "a100"]
    assert load_columns(str(tmp_path)).machine
