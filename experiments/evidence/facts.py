"""The conditions of the runs whose raw files are shipped, from `raw/conditions.json` in a folder of results, written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gensor_gym.foreign import read_fields

RAW = "raw"
FILE = "conditions.json"


@dataclass(frozen=True)
class Facts:
    """Facts about a device and its runs, for tables. `files` has the content of every raw file and the fixes (mends) in its code.

    `mends` of a file are null if unknown, which is allowed only for files that no mend affects.
    """

    machine: str
    device: str
    date: str
    driver: str
    cuda: str
    python: str
    cupy: str
    torch: str
    triton: str
    cores: int
    clocks: str
    others: str
    commit: str
    fingerprint: str
    version: str
    mends: Mapping[str, str]
    files: Mapping[str, Mapping[str, Any]]


def read_facts(folder: Path) -> Facts:
    """Read the facts of a folder of results; ValueError if they are missing or invalid."""
    path = folder / RAW / FILE
    if not path.is_file():
        raise ValueError(f"no {path}: expected the raw files of runs and what is to be said of them")
    try:
        facts = read_fields(path, Facts)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} does not describe runs: {error}") from error
    if missing := [name for name in facts.files if not (folder / RAW / name).is_file()]:
        raise ValueError(f"{path} names files that are not there: {', '.join(missing)}")
    return facts
