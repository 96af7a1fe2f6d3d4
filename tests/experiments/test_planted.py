"""Planted changes: what stands in the journal of another choice of certificates is no answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from experiments.common.journal import Journal
from experiments.planted import __main__ as planted
from experiments.planted.changes import BEHAVIOUR, Change
from gensor_gym.exact import Certificate


def test_rows_of_other_certificates_are_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, asked = BEHAVIOUR[0].name, []

    def outcome_of(change: Change, behaviour: bool, certificates: Sequence[Certificate], _: Sequence[str]) -> planted.Outcome:
        asked.append(change.name)
        return planted.Outcome(change.name, behaviour, len(certificates), 1, 1, ())

    monkeypatch.setattr(planted, "outcome_of", outcome_of)
    monkeypatch.setattr(planted, "fingerprint", lambda graph: "")
    with Journal(tmp_path / "planted.jsonl", ("change", "tasks")) as journal:
        journal.add(asdict(planted.Outcome(name, True, 10**6, 1, 0, ("gemm(m=8, n=8, k=8)",))))
    arguments = ["--only", name, "--output", str(tmp_path)]
    assert planted.main(arguments) == 0 and asked == [name]
    assert planted.main(arguments) == 0 and asked == [name]  # the same certificates: known
    assert f"| {name} | " in (tmp_path / "planted.md").read_text()
