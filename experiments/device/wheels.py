"""Packages that a GPU machine lacks, brought there as wheels in the folder `.whl` (see experiments/gpu_wheels.txt)."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / ".whl"
NEEDED = ("numpy", "numba", "gymnasium", "yaml")
"""Modules that every plan of `experiments.gpu` needs."""
ON_DEVICE = ("cupy", "cuda.bindings.nvrtc")
"""Modules that a run on the device needs beyond those."""


def use_wheels(folder: Path = FOLDER) -> Path | None:
    """Unpack the wheels of a folder, unless that is done, and append their folder to the import path, also for child processes.

    Return the folder, or None without wheels. The machine's own packages come first in this process. A pure wheel is a zip file
    of its packages.
    """
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        return None
    site = folder / "site"
    for wheel in wheels:
        mark = site / f".{wheel.name}.unpacked"
        if not mark.exists():
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
            mark.touch()
    if str(site) not in sys.path:
        sys.path.append(str(site))
        importlib.invalidate_caches()
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(site) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, paths), str(site)])
    return site


def missing(modules: Sequence[str]) -> list[str]:
    """Return those of the modules that cannot be found; only the parents of dotted names are imported."""
    return [name for name in modules if not _found(name)]


def _found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the parent of a dotted name
        return False
