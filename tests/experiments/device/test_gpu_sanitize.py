"""Which kernels go under the sanitizer, and that it ends in time; a program stands in for it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.device import sanitize


def archive(tmp_path: Path) -> Any:
    """Three kernels that were compiled, and one that travelled as text."""
    schedules = {"a": "persistent=2", "b": "persistent=2 cluster=2", "c": "persistent=1", "d": "persistent=2"}
    sizes = {"a": 64, "b": 32, "c": 96, "d": 128}
    rows = [
        {"digest": d, "group": "never_run", "schedule": text, "operator": f"gemm(m={sizes[d]}, n=64, k=64)"}
        for d, text in schedules.items()
    ]
    compiled = {d: {"digest": d} for d in "abc"}
    return SimpleNamespace(proposals=rows, rows=compiled, built=lambda d: SimpleNamespace(path=str(tmp_path / d)))


def test_one_of_each_kind_that_is_compiled_is_chosen(tmp_path: Path) -> None:
    found = sanitize.chosen(archive(tmp_path))
    assert {kind: row["digest"] for kind, row in found.items()} == {"shares": "a", "shares in clusters": "b"}


@pytest.mark.thorough
def test_it_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words and exit code of what ended, and of what was killed."""
    tool = tmp_path / "tool"
    monkeypatch.setattr(sanitize, "SANITIZER", (str(tool),))
    assert sanitize.sanitize(archive(tmp_path), tmp_path) == []
    wait = "time.sleep(60 if '_1' in sys.argv[-1] else 0)"
    lines = ("import sys, time", "print(sys.argv[-1], flush=True)", wait, "sys.exit(9)")
    tool.write_text("\n".join([f"#!{sys.executable}", *lines]))
    tool.chmod(0o755)
    ended, killed = sanitize.sanitize(archive(tmp_path), tmp_path, 2.0)
    assert ended["kind"] == "shares" and ended["code"] == 9 and "sanitized_0.json" in ended["words"]
    assert killed["code"] < 0 and killed["words"].endswith("killed after 2 s") and killed["seconds"] < 10
