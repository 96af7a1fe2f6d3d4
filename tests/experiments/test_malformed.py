"""What is no good is refused in every command: one line on the standard error, exit code 2, nothing half written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("sb3_contrib")

from experiments import entry  # noqa: E402
from tests.support import malformed  # noqa: E402


def refusal(words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> str:
    """The line on which a command ends, in this process."""
    monkeypatch.setattr(sys, "argv", ["gensor", *words])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    said = capfd.readouterr().err
    (line,) = said.splitlines()
    assert ended.value.code == 2 and 0 < len(line) < 1300 and "Traceback" not in said
    return line


@pytest.mark.parametrize("name", malformed.CASES)
@pytest.mark.filterwarnings("ignore:policy .* was trained on tasks of other rules")
def test_what_is_no_good_is_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words, files = malformed.CASES[name]
    malformed.put(tmp_path, files)
    before = sorted(path for path in tmp_path.rglob("*.*") if path.is_file())
    refusal([word.replace("{here}", str(tmp_path)) for word in words], monkeypatch, capfd)
    left = {path for path in tmp_path.rglob("*.*") if path.is_file()} - set(before)
    assert not [path for path in left if path.suffix == ".tmp" or path.stat().st_size == 0 and path.suffix in (".json", ".md")]


def test_there_are_forty_cases_over_all_commands_that_read_files() -> None:
    assert len(malformed.CASES) >= 40
    assert len({words[0] for words, _ in malformed.CASES.values()}) >= 12
