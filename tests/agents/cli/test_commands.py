"""What commands have in common: arguments made readable, refusals, the last line."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from agents.cli.command import command_line, say_where
from agents.cli.refusal import refusals


def test_a_refusal_is_said_and_ends_the_command_with_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, refusals():
        raise OSError("folder [x] cannot be written,\n" + 4 * "which is long " + "\x1b[2J")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "folder [x] cannot be written, " + 4 * "which is long " + "?[2J\n"
    with pytest.raises(KeyError), refusals():
        raise KeyError("an error of our own is shown whole")
    with pytest.raises(SystemExit) as ended, refusals(RuntimeError):
        raise RuntimeError("3\nlines\nlong" + "x" * 5000)
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and line.startswith("3 lines long") and len(line) < 1300
    monkeypatch.setenv("GENSOR_GYM_DEBUG", "1")
    with pytest.raises(OSError, match="shown whole"), refusals():
        raise OSError("shown whole")


def test_arguments_are_readable_when_a_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["compare", "operator=gemm(m=8, n=8, k=8)", "seed=1"])
    seen: list[list[str]] = []
    command_line(lambda: seen.append(list(sys.argv)))
    assert seen == [["compare", "operators='gemm(m=8, n=8, k=8)'", "seed=1"]]


def test_the_last_line_names_seconds_and_folder() -> None:
    said = io.StringIO()
    say_where(Console(file=said, width=20), time.perf_counter() - 7.2, Path("outputs/a/long/name/of/a/[bold]/[/folder]"))
    assert said.getvalue() == "7 s. Results are in outputs/a/long/name/of/a/[bold]/[/folder]\n"
