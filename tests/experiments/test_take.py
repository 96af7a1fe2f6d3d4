"""Taking home what a lease brought."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from agents.runs.journal import read_rows
from experiments.device.lease import RESULTS
from experiments.evidence.lease import take

CARD = {
    "date": "2026-11-26T23:59:00+00:00", "python": "3.12.3", "cores": 16, "packages": {"torch": "2.11.0"},
    "nvidia_smi": "CUDA Version: 13.0", "gpu": {"name": "NVIDIA H200", "driver_version": "580.1"},
    "archive": {"revision": "abc", "compiler": "nvrtc 13.0"},
}  # fmt: skip
ROW = {"key": "gemm x", "operator": "gemm", "schedule": "x", "digest": "d", "status": "OK", "samples": [1e-6]}


def packed(folder: Path, **files: bytes) -> Path:
    """What came back."""
    folder.mkdir()
    with tarfile.open(folder / RESULTS, "w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return folder


def came(folder: Path, card: dict[str, object]) -> Path:
    """A card, rows of which the last is torn, and rows that were packed."""
    lines = json.dumps(ROW) + "\n" + '{"key": "torn'
    proposals = gzip.compress((json.dumps(ROW) + "\n").encode())
    rows = {"trials.jsonl": lines.encode(), "proposals.jsonl.gz": proposals}
    return packed(folder, **{"card.json": json.dumps(card).encode()}, **rows)


def test_rows_and_conditions_lie_where_pages_are_made_of(tmp_path: Path) -> None:
    home = take(came(tmp_path / "back", CARD), results=tmp_path / "results")
    assert home == tmp_path / "results" / "h200" / "raw" / "2026-11-26"
    (row,) = read_rows(home / "trials.jsonl.gz")
    assert row["samples"] == [1e-6]
    about = json.loads((home / "conditions.json").read_text())
    assert (about["device"], about["commit"], about["cuda"]) == ("NVIDIA H200", "abc", "13.0")
    assert set(about["files"]) == {"trials.jsonl.gz", "proposals.jsonl.gz"}


def test_nothing_is_written_over(tmp_path: Path) -> None:
    back = came(tmp_path / "back", CARD)
    take(back, results=tmp_path / "results")
    with pytest.raises(ValueError, match="is there already: name another date, such as 2026-11-26b"):
        take(back, results=tmp_path / "results")
    assert take(back, "2026-11-26b", tmp_path / "results").name == "2026-11-26b"


def test_what_is_no_lease_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not read"):
        take(tmp_path)
    with pytest.raises(ValueError, match="the card is 'NVIDIA T4': expected one of H100, H200"):
        take(came(tmp_path / "back", {**CARD, "gpu": {"name": "NVIDIA T4"}}), results=tmp_path / "results")
