"""What commands have in common: arguments made readable, refusals, the last line."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from experiments.commands.command import command_line, refusals, say_where


def test_a_refusal_is_said_and_ends_the_command_with_code_2() -> None:
    said = io.StringIO()
    console = Console(file=said, width=40)
    with pytest.raises(SystemExit) as ended, refusals(console, ValueError, OSError):
        raise OSError("folder [x] cannot be written, " + 4 * "which is long ")
    assert ended.value.code == 2
    assert said.getvalue() == "folder [x] cannot be written, " + 4 * "which is long " + "\n"
    with pytest.raises(KeyError), refusals(console, ValueError):
        raise KeyError("an error of our own is shown whole")


def test_arguments_are_readable_when_a_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["compare", "operator=gemm(m=8, n=8, k=8)", "seed=1"])
    seen: list[list[str]] = []
    command_line(lambda: seen.append(list(sys.argv)))
    assert seen == [["compare", "operators='gemm(m=8, n=8, k=8)'", "seed=1"]]


def test_the_last_line_names_seconds_and_folder() -> None:
    said = io.StringIO()
    say_where(Console(file=said, width=20), time.perf_counter() - 7.2, Path("outputs/a/long/name/of/a/folder"))
    assert said.getvalue() == "7 s. Results are in outputs/a/long/name/of/a/folder\n"


def test_an_operator_that_cannot_be_read_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["command", "operator=gemm(m=4"])
    with pytest.raises(SystemExit) as ended:
        command_line(lambda: pytest.fail("it ran"))
    assert ended.value.code == 2 and "a bracket is not closed" in capsys.readouterr().out
