"""The transfer matrix: policies by what they were trained on, tested on all, beside the one trained there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from experiments.arguments import compose
from experiments.transfer import plans_of, transfer
from tests.test_experiments_generalise import GEMM, GEMV, make_policy

MACHINES = ("h200", "t4")


def test_the_matrix_is_whole_and_kept(tmp_path: Path) -> None:
    for number, name in enumerate(MACHINES):
        for seed in (0, 1):
            make_policy(tmp_path / f"{name}{seed}", seed + 10 * number)
            card = json.loads((tmp_path / f"{name}{seed}" / "card.json").read_text())
            card["config"] = {"seed": seed, "env": {"hardware": name, "space": "gensor"}}
            (tmp_path / f"{name}{seed}" / "card.json").write_text(json.dumps(card))
    overrides = [
        f"operators=['{GEMM}','{GEMV}']", "env.hardware=[h200,t4]", "seeds=[0,1]", "evaluations=400", "processes=1",
        "resamples=40", f"output={tmp_path / 'out'}", "policies.ppo_successors.best_of=4",
        f"policies.ppo_successors.folder='{tmp_path}/{{hardware}}{{seed}}'", "policies.ppo_successors.parameters={}",
        "~policies.ppo_successors.train",
        "++strategies.markov={walkers: 1, steps: 8, refiners: 0, descents: 0}",
    ]  # fmt: skip
    plans = plans_of(compose(overrides, name="transfer"))
    summary = transfer(plans, Console(quiet=True))
    for name, column in summary["columns"].items():
        assert set(column["regret"]) == {*MACHINES, "markov"} and set(column["over_native"]) == {*MACHINES, "markov"} - {name}
        other = next(machine for machine in MACHINES if machine != name)
        difference = column["regret"][other]["mean"] - column["regret"][name]["mean"]
        assert column["over_native"][other]["mean"] == pytest.approx(difference)
    lines = (tmp_path / "out" / "lines.jsonl").read_text()
    assert len(lines.splitlines()) == 2 * 2 * 2 * (2 + 1)  # tested on, operators, seeds; trained on, and the search
    assert (tmp_path / "out" / "transfer.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "out" / "summary.md").read_text()
    assert "trained on" in text and "What transfer costs" in text
    assert transfer(plans, Console(quiet=True))["columns"] == summary["columns"]
    assert (tmp_path / "out" / "lines.jsonl").read_text() == lines


def test_a_matrix_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a list of two or more"):
        plans_of(compose(["env.hardware=[h200]"], name="transfer"))
    with pytest.raises(ValueError, match="one kind of policy"):
        plans_of(compose(["+policies.other=${policies.ppo_successors}"], name="transfer"))
