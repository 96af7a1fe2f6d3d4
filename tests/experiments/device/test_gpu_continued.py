"""Tables that a run goes on with: never rows of two timing protocols in one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from experiments.common.journal import Journal, read_rows
from experiments.device import gpu
from experiments.device.continued import continue_table
from gensor_gym.measure.records.backend import RecordedBackend
from gensor_gym.measure.stats.timing import PROTOCOL

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = (ROOT / "results/h100/raw", ROOT / "results/h100/raw/2026-11-23")
ROW = {"operator": "gemv(m=7, k=64)", "schedule": "s", "digest": "d", "device": "H100", "status": "OK", "samples": [1.0]}


def row(digest: str, protocol: int, device: str = "H100") -> dict:
    return {**ROW, "digest": digest, "device": device, "conditions": {"protocol": protocol}}


def write(path: Path, *rows: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(one) + "\n" for one in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def digests(path: Path) -> list[str]:
    return [one["digest"] for one in read_rows(path)]


def test_rows_of_today_in_several_folders_are_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row that two folders have is taken once; older ones stay where they are, and are counted."""
    first, second, out = tmp_path / "first", tmp_path / "second", tmp_path / "out"
    write(first / "recorded.jsonl", row("a", PROTOCOL), row("b", PROTOCOL - 1))
    write(second / "recorded.jsonl.gz", row("a", PROTOCOL), row("c", PROTOCOL), row("d", PROTOCOL, "A100"))
    settings = gpu.read_arguments([f"previous={first},{second}", "stages=tables"])
    gpu.start_afresh(settings, out, "H100")
    assert digests(out / "recorded.jsonl") == ["a", "c"] and digests(first / "recorded.jsonl") == ["a", "b"]
    said = capsys.readouterr()
    assert "2 rows of" in said.out + said.err and f"1 of another protocol than {PROTOCOL}" in said.out + said.err


def test_older_rows_of_the_folder_itself_are_set_aside(tmp_path: Path) -> None:
    """With and without `previous`: what is recorded next stands in a table of its own."""
    out = tmp_path / "out"
    write(out / "recorded.jsonl", row("a", PROTOCOL - 1), row("b", PROTOCOL))
    for words in ([], [f"previous={out}"]):
        gpu.start_afresh(gpu.read_arguments(["stages=tables", *words]), out, "H100")
        assert digests(out / "recorded.jsonl") == ["b"]
        assert digests(out / f"recorded_protocol{PROTOCOL - 1}.jsonl") == ["a"]


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_what_ships_can_be_gone_on_with(tmp_path: Path, folder: Path) -> None:
    """A row that is appended to what was continued reads as one table."""
    file = tmp_path / "recorded.jsonl"
    continue_table([folder], file, "")
    last = read_rows(folder / "recorded.jsonl.gz")[-1]
    journal = Journal(file, ())
    journal.add({**last, "key": "one more", "conditions": {**last["conditions"], "protocol": PROTOCOL}})
    journal.close()
    assert RecordedBackend(file).device
