"""Commands around certified optima, given what they cannot use."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.cli.arguments import compose
from agents.exact import certify, check_certificates
from agents.recording import task_cards
from agents.runs.settings import settings_of


@pytest.mark.parametrize("words", [["gemm(m=64"], ["nosuch"], ["gemm(m=8, n=8, k=8)", "--hardware", "h201"]])
def test_what_is_no_task_is_said_in_a_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for command in (certify.main, task_cards.main):
        with pytest.raises(SystemExit) as ended:
            command(words)
        said = capsys.readouterr().err
        assert ended.value.code == 2 and words[-1].split("(")[0] in said and "Traceback" not in said


def test_files_without_certificates_are_not_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        check_certificates.main([str(tmp_path / "nofile")])
    assert ended.value.code == 2 and "nofile" in capsys.readouterr().err
    path = tmp_path / "one.jsonl"
    assert certify.main(["gemm(m=4, n=4, k=4)", "--output", str(path)]) == 0
    assert check_certificates.main([str(path), "--samples", "100"]) == 0
    assert "1 of 1 right" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        check_certificates.main([str(path), "--match", "conv2d"])


def test_a_budget_has_three_fields(tmp_path: Path) -> None:
    words = ["strategy=random_walk", "operator=gemm(m=24, n=20, k=28)", "backend=analytic", "hardware=h200", "+budget.trails=3"]
    with pytest.raises(ValueError, match="budget has no trails; it has trials, evaluations, seconds"):
        settings_of(compose([*words, f"output={tmp_path}"]))
