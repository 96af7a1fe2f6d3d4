"""Records of others: one that is forged or broken is refused with its reason, and nothing of its file is taken."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from agents.recording.store import main
from gensor_gym import ConstructionGraph, Schedule
from gensor_gym.measure.records.imported import _device, fault
from gensor_gym.measure.records.store import Store
from gensor_gym.measure.records.tables import from_row

OPERATOR = "gemm(m=24, n=32, k=16)"
FIRST = ConstructionGraph(OPERATOR, "cascade_lake", "extended").initial()
WIDE = FIRST.row.copy()
WIDE[:24] = 1 << 20
HERE = "this machine"
GOOD: dict[str, Any] = {
    "operator": OPERATOR, "schedule": str(FIRST), "status": "OK",
    "samples": [2e-6, 1e-6], "device": "another x4", "digest": "d" * 64, "conditions": {"threads": 4}, "created": 1.7e9,
}  # fmt: skip
FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "no operator": ({"operator": "rm(x=1)"}, "rm"),
    "another text of it": ({"operator": "gemm(n=32, m=24, k=16)"}, "expected it written as"),
    "no schedule": ({"schedule": "import os"}, "not a schedule"),
    "a tile of 0": ({"schedule": GOOD["schedule"].replace("tile[1x", "tile[0x", 1)}, "below 1"),
    "a tile beyond int32": ({"schedule": GOOD["schedule"].replace("tile[1x", "tile[99999999999x", 1)}, "int"),
    "not legal here": ({"schedule": str(Schedule(WIDE)), "device": HERE}, "not legal here"),
    "a negative time": ({"samples": [1e-6, -1e-6]}, "-1e-06"),
    "no time at all": ({"samples": [float("nan")]}, "nan"),
    "an endless time": ({"samples": [float("inf")]}, "inf"),
    "a time in words": ({"samples": ["1"]}, "expected seconds"),
    "OK without a sample": ({"samples": []}, "0 samples"),
    "a huge text": ({"error": "x" * 10_000_000}, "10000000 characters"),
    "huge conditions": ({"conditions": {"x": "y" * 1_000_000}}, "conditions have"),
    "conditions that are none": ({"conditions": {}, "device": 7}, "device is 7"),
    "a date to come": ({"created": time.time() + 1e7}, "not to come"),
    "a protocol in words": ({"protocol": "2"}, "protocol"),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_is_forged_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    change, words = FORGED[name]
    if change.get("device") == HERE:
        change = change | {"device": _device()}
    path, store = tmp_path / "t.jsonl", tmp_path / "s.sqlite"
    path.write_text("".join(json.dumps(row) + "\n" for row in (GOOD, GOOD | change)))
    assert main(["import", str(store), str(path)]) == 2
    said = capsys.readouterr().err
    assert ("record 2: " in said or "line 2: " in said) and words in said and len(said) < 20_000
    assert not store.exists()


def test_merged_stores_are_looked_at_as_well(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    Store(tmp_path / "b.sqlite").add([from_row(GOOD | {"samples": [-1.0]})])
    assert main(["merge", str(tmp_path / "a.sqlite"), str(tmp_path / "b.sqlite")]) == 2
    assert "-1.0" in capsys.readouterr().err


def test_what_is_right_is_taken(tmp_path: Path) -> None:
    for device in ("another x4", _device()):
        assert fault(from_row(GOOD | {"device": device})) == ""
    (tmp_path / "t.jsonl").write_text(json.dumps(GOOD) + "\n")
    assert main(["import", str(tmp_path / "s.sqlite"), str(tmp_path / "t.jsonl")]) == 0
    assert len(Store(tmp_path / "s.sqlite")) == 1
