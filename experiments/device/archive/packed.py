"""Archive of compiled GPU kernels (cubins), with everything else that is needed to launch them, but without their sources.

An archive is a folder: `about.json` (what built it), `proposals.jsonl.gz` (who proposed which kernel) and `part-N.tar.xz`, each
with some hundred cubins and one `kernels.jsonl` that says how they are launched.
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agents.runs.journal import read_rows
from agents.runs.settings import ROOT
from gensor_gym import operators
from gensor_gym.codegen.cuda.tensor_map import TensorMap
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.files import whole
from gensor_gym.measure.workers.requests import Built

ABOUT, PROPOSALS, KERNELS = "about.json", "proposals.jsonl.gz", "kernels.jsonl"
VARIANT = "variant"
"""Field of a trial's row that names the variant of `build.VARIANTS`, which is also its arm: the schedule is of a plain kernel."""
FOLDER = ROOT / "build" / "lease"
"""Folder in which the archive is made, which git ignores."""
CARRY = FOLDER / "carry"
"""Folder of the finished archive, which is transferred to the GPU machine."""


def described(kernel: Kernel) -> dict[str, Any]:
    """Return everything about a kernel except its source, as JSON values that `kernel_of` reads."""
    return {
        "digest": kernel.digest, "operator": str(kernel.operator), "arch": kernel.arch,
        "launches": [asdict(launch) for launch in kernel.launches], "workspace_bytes": kernel.workspace_bytes,
        "cleared_bytes": kernel.cleared_bytes, "maps": [asdict(one) for one in kernel.maps],
    }  # fmt: skip


def kernel_of(row: Mapping[str, Any]) -> Kernel:
    """Return the kernel that a row of `described` stands for, with its source if the row has one.

    Raise KeyError, TypeError or ValueError for any other row.
    """
    source = row.get("source", "")
    return Kernel(
        operators.parse(row["operator"]), "cuda", row["arch"], source, tuple(Launch(**_tuples(one)) for one in row["launches"]),
        row["workspace_bytes"], cleared_bytes=row["cleared_bytes"],
        maps=tuple(TensorMap(**_tuples(one)) for one in row["maps"]), packed="" if source else row["digest"],
    )  # fmt: skip


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def write_part(path: Path, rows: Sequence[Mapping[str, Any]], cubins: Path) -> None:
    """Pack rows of kernels, and their cubins from a folder, into the file `path`, which appears whole or not at all."""

    def write(temporary: Path) -> None:
        with lzma.open(temporary, "wb", preset=6) as file, tarfile.open(fileobj=file, mode="w") as tar:
            add_file(tar, KERNELS, "".join(json.dumps(row) + "\n" for row in rows).encode())
            for digest in [row["digest"] for row in rows]:
                add_file(tar, f"{digest}.cubin", (cubins / f"{digest}.cubin").read_bytes())

    whole(path, write)


def add_file(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file with these bytes to the tar."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def open_archive(folder: Path = CARRY) -> Archive:
    """Unpack the archive in a folder into a temporary folder and return it; ValueError if the folder has no archive."""
    return Archive(folder, Path(tempfile.mkdtemp(prefix="gensor-gym-kernels-")))


class Archive:
    """An unpacked archive: its description, its proposals, and its kernels by digest."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        """Unpack all parts of the archive in `folder` into `scratch`, in parallel; ValueError if there is no archive."""
        if not (folder / ABOUT).exists():
            raise ValueError(f"{folder} holds no archive of kernels: make one with python -m experiments.gpu plan=archive")
        scratch.mkdir(parents=True, exist_ok=True)
        self.about: dict[str, Any] = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        self.proposals = read_rows(folder / PROPOSALS)
        self._cubins = scratch
        with ThreadPoolExecutor() as threads:
            parts = threads.map(lambda part: _unpacked(part, scratch), sorted(folder.glob("part-*.tar.xz")))
            self.rows = {row["digest"]: row for rows in parts for row in rows}

    def built(self, digest: str) -> Built:
        """Return a compiled kernel with the path of its cubin; raise KeyError if the archive lacks it."""
        path = self._cubins / f"{digest}.cubin"
        return Built(kernel_of(self.rows[digest]), str(path), self.about["compiler"])


def _unpacked(part: Path, scratch: Path) -> Iterable[dict[str, Any]]:
    with tarfile.open(part, "r:xz") as tar:
        tar.extractall(scratch / part.name, filter="data")
    for path in (scratch / part.name).glob("*.cubin"):
        path.replace(scratch / path.name)
    return read_rows(scratch / part.name / KERNELS)
