"""Files that an isolated worker may read: the system's libraries, Python, installed packages, descriptions of the processor."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from gensor_gym.cache.folders import cache_dir, home_folder

SYSTEM = (
    "/usr", "/lib", "/lib64", "/lib32", "/bin", "/opt", "/nix/store", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime",
    "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/loadavg", "/proc/stat", "/proc/version", "/proc/sys/vm",
    "/proc/sys/kernel", "/sys/devices", "/sys/fs/cgroup", "/sys/kernel/mm", "/dev/null", "/dev/zero", "/dev/random",
    "/dev/urandom",
)  # fmt: skip
WRITTEN = ("/dev/null",)


def readable() -> list[str]:
    """Return the paths that an isolated worker may read, for `landlock.restrict`.

    They never contain the user's home folder or a folder above it.
    """
    searched = [path for path in sys.path if path and os.path.isabs(path)]  # the current folder is not absolute
    python = [sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.realpath(sys.executable))]
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    kernels = os.path.realpath(cache_dir() / "kernels")  # thousands of files; a request has the one it needs
    others = [path for path in loaded() if path != kernels and os.path.dirname(path) != kernels]
    found = [*python, *_installed(searched), *_packages(), *libraries, *others]
    return [*SYSTEM, *beneath_home(found, home_folder() or Path("/"))]


def beneath_home(paths: Iterable[str], home: Path) -> list[str]:
    """Return those of `paths` that exist, each once, without the folder `home` and the folders that contain it."""
    above = {str(folder) for folder in (home, *home.parents, home.resolve(), *home.resolve().parents)}
    kept = [path for path in paths if os.path.exists(path) and not {path, os.path.realpath(path)} & above]
    return list(dict.fromkeys(kept))


def loaded(maps: str = "/proc/self/maps") -> list[str]:
    """Return the paths of the libraries that this process has loaded, and of their folders if the process cannot write to them.

    Some systems keep each version of a library in a folder of its own, which only the path of the loaded library reveals.
    """
    try:
        lines = Path(maps).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    files = {line.split(None, 5)[5] for line in lines if ".so" in line and line.count("/")}
    folders = {os.path.dirname(file) for file in files}
    return sorted(files | {folder for folder in folders if not os.access(folder, os.W_OK)})


def _installed(searched: Sequence[str]) -> list[str]:
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in searched if path in named or Path(path).name in ("site-packages", "dist-packages")]


def _packages() -> list[str]:
    found = [list(getattr(module, "__path__", [])) for name, module in list(sys.modules.items()) if "." not in name]
    return [str(path) for paths in found for path in paths if os.path.isabs(str(path))]
