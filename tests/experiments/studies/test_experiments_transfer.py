"""The transfer matrix: policies by what they were trained on, tested on all, beside the one trained there."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from agents.cli.arguments import compose
from agents.policies.training_tasks import bound
from experiments.studies.transfer import Transfer, column, plans_of
from tests.support.coarse_figures import COARSE_FIGURES
from tests.support.in_process import search_here
from tests.support.policies_made import GEMM, GEMV, make_policy

pytestmark = COARSE_FIGURES
MACHINES = ("h200", "t4")


@pytest.mark.thorough
def test_the_matrix_is_whole_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search_here(monkeypatch)
    for number, name in enumerate(MACHINES):
        for seed in (0, 1):
            make_policy(tmp_path / f"{name}{seed}", seed + 10 * number)
            card = json.loads((tmp_path / f"{name}{seed}" / "card.json").read_text())
            card["config"] = {**card["config"], "seed": seed, "env": {"hardware": name, "space": "gensor"}}
            card |= bound(card["operators"], card["config"]["env"])
            (tmp_path / f"{name}{seed}" / "card.json").write_text(json.dumps(card))
    overrides = [
        f"operators=['{GEMM}','{GEMV}']", "env.hardware=[h200,t4]", "seeds=[0,1]", "evaluations=400", "processes=1",
        "resamples=40", f"output={tmp_path / 'out'}", "~policies.columns",
        f"+policies.p={{of: ppo, best_of: 4, folder: '{tmp_path}/{{hardware}}{{seed}}'}}",
        "++strategies.markov={walkers: 1, steps: 8, refiners: 0, descents: 0}", "~strategies.model_annealing",
    ]  # fmt: skip
    plans = plans_of(compose(overrides, name="transfer"))
    _, summary = Transfer(plans)(Console(quiet=True))
    for name, one in summary["columns"].items():
        assert set(one["regret"]) == {*MACHINES, "markov"} and set(one["over_native"]) == {*MACHINES, "markov"} - {name}
        other = next(machine for machine in MACHINES if machine != name)
        difference = one["regret"][other]["mean"] - one["regret"][name]["mean"]
        assert one["over_native"][other]["mean"] == pytest.approx(difference)
    lines = (tmp_path / "out" / "lines.jsonl").read_text()
    assert len(lines.splitlines()) == 2 * 2 * 2 * (2 + 1)  # tested on, operators, seeds; trained on, and the search
    assert (tmp_path / "out" / "transfer.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "out" / "summary.md").read_text()
    assert "trained on" in text and "What transfer costs" in text
    assert Transfer(plans)(Console(quiet=True))[1]["columns"] == summary["columns"]
    assert (tmp_path / "out" / "lines.jsonl").read_text() == lines


def test_policies_from_elsewhere_are_stopped_at_the_native_evaluations() -> None:
    """One that is better in the end and worse by then is worse."""

    class Ended:
        """A study of two operators and two seeds: the native policy ends at 10 evaluations, the other at 50."""

        plan = SimpleNamespace(hardware="t4", policies=(SimpleNamespace(sampled="p"),), strategies={}, resamples=20)
        tasks = (SimpleNamespace(text="a"), SimpleNamespace(text="b"))

        def first(self, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            native = name.endswith("t4")
            return np.full((2, 2), 10.0 if native else 50.0), np.full((2, 2), 0.2 if native else 0.1), np.ones((2, 2))

        def regret(self, name: str, evaluations: np.ndarray) -> np.ndarray:
            return np.where(evaluations < 50, 0.2 if name.endswith("t4") else 0.5, 0.1)

    found = column(Ended(), MACHINES)  # type: ignore[arg-type]
    assert found["regret"]["h200"]["mean"] == pytest.approx(0.5) and found["regret"]["t4"]["mean"] == pytest.approx(0.2)
    assert found["over_native"]["h200"]["mean"] == pytest.approx(0.3)
    assert found["evaluations"] == {"h200": 50.0, "t4": 10.0}


def test_a_matrix_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a list of two or more"):
        plans_of(compose(["env.hardware=[h200]"], name="transfer"))
    with pytest.raises(ValueError, match="one kind of policy"):
        plans_of(compose(["+policies.other=${policies.columns}"], name="transfer"))
