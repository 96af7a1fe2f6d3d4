"""The study of generalisation takes policies that were trained for it, and has missing ones trained."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from experiments.studies.generalise import plan
from tests.support.policies_made import make_policy


def test_a_policy_of_something_else_is_refused(tmp_path: Path) -> None:
    make_policy(tmp_path / "p0", 0)
    with pytest.raises(ValueError, match="asked for are"):
        plan.train_missing(str(tmp_path / "p{seed}"), [0], "a100", "gensor", {}, 1)
    card = json.loads((tmp_path / "p0" / "card.json").read_text())
    with pytest.raises(ValueError, match="trained with {'agent': 'ppo', 'steps': None}, asked for are .*'steps': 100"):
        plan.train_missing(str(tmp_path / "p{seed}"), [0], "h200", "gensor", {"agent": "a2c", "steps": 100, "seed": 0}, 1)
    (tmp_path / "p0" / "card.json").write_text(json.dumps({**card, "operators": "split/v1/test"}))
    with pytest.raises(ValueError, match="expected operators of the train part"):
        plan.train_missing(str(tmp_path / "p{seed}"), [0], "h200", "gensor", {}, 1)


def test_training_is_told_what_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = plan.command_of(tmp_path, 3, "a100", "gensor", {"agent": "ppo", "steps": 100})
    assert command[1:4] == ["-m", "experiments", "train"]
    assert {"agent=ppo", "steps=100", "seed=3", f"output={tmp_path}", "env.hardware=a100", "env.space=gensor"} <= set(command)
    fails = [sys.executable, "-c", "raise SystemExit('it is so')"]
    monkeypatch.setattr(plan, "command_of", lambda folder, *_: [*fails, f"output={folder}"])
    with pytest.raises(RuntimeError, match="failed: it is so"):
        plan.train_missing(str(tmp_path / "q{seed}"), [0], "h200", "gensor", {}, 1)
