"""The conditions of the runs whose raw files are shipped: `raw/conditions.json` of a folder of results, written by hand."""

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
    """What all pages say of a device and its runs; `files` has for every raw file what it holds and which mends were in.

    `mends` of a file are null where that was not written down, which only files may have that no mend touches.
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

    @property
    def head(self) -> str:
        """The line under a page's title."""
        return (
            f"{self.device}, driver {self.driver}, CUDA {self.cuda}, Python {self.python}, CuPy {self.cupy}, torch {self.torch}, "
            f"Triton {self.triton}, {self.cores} host cores. Clocks {self.clocks}; {self.others}. {self.date}, commit "
            f"{self.commit}."
        )

    def source(self, name: str) -> str:
        """The line that says what a raw file holds and which mends of the generator were in."""
        return f"From [`{RAW}/{name}`]({RAW}/{name}): {self.files[name]['about']}. Mends that were in: {self.mends_in(name)}."

    def mends_in(self, name: str) -> str:
        """Which mends were in when a raw file was written, in words."""
        mends = self.files[name]["mends"]
        return "not written down, none touches it" if mends is None else ", ".join(mends) or "none"

    @property
    def mended(self) -> list[str]:
        """What each mend is, as a list of Markdown."""
        return [f"- {name}: {text}." for name, text in self.mends.items()]


def read_facts(folder: Path) -> Facts:
    """The facts of a folder of results; ValueError where they are missing or are none."""
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
