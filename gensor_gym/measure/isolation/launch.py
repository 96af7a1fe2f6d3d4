"""Start of a worker: `python -P launch.py RULES WORKER_ARGUMENTS..` gives up rights, then becomes the worker process.

It runs as a file and not as a module: importing the package starts NumPy's threads, and Landlock does not bind running threads.
RULES is empty for a worker without isolation. Otherwise it is the path of a JSON file with the arguments of `shut_in` or, for a
compiler of sources that an agent wrote, of `become_tool`. With a `script` this process becomes that script, not the worker. The
file is removed once it is read. An argument would be too short for the paths of a thousand loaded libraries.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ISOLATED_BY = "GENSOR_GYM_ISOLATED_BY"
"""Environment variable that tells a worker its kind of isolation: `WHOLE`, a part of it, or `none`; empty if switched off."""
WHOLE = "landlock+seccomp"
WORKER = "gensor_gym.measure.workers.worker"
_LARGEST_FILE = 1 << 30
"""Largest size in bytes of a file that a kernel may write: standard error, or a file in the worker's folder."""


def shut_in(readable: list[str], writable: list[str], memory: int = 0) -> str:
    """Permanently give up sockets, other processes, files outside these paths, and `memory` bytes of data or more (0: no limit).

    Return the names of the restrictions in force, joined by `+`, or `none`.
    """
    limit(resource.RLIMIT_CORE, 0)  # no core dump in the folder of a crash
    limit(resource.RLIMIT_FSIZE, _LARGEST_FILE)
    if memory:
        limit(resource.RLIMIT_DATA, memory)
    landlock, seccomp = _neighbour("landlock"), _neighbour("seccomp")
    landlock.no_new_privileges()
    done = {"landlock": landlock.restrict(readable, writable), "seccomp": seccomp.restrict()}
    return "+".join(name for name in done if done[name]) or "none"


def become_tool(command: list[str], readable: list[str], writable: list[str], memory: int, seconds: int) -> None:
    """Become another program, such as a compiler, that uses files only beneath these paths. It may start programs of `readable`.

    Each of its processes may use `memory` bytes of address space and `seconds` of processor time.
    """
    limits = {"CORE": 0, "FSIZE": _LARGEST_FILE, "AS": memory, "CPU": seconds}
    for name, most in limits.items():
        limit(getattr(resource, f"RLIMIT_{name}"), most)
    _neighbour("landlock").restrict(readable, writable, executes=True)
    os.execvp(command[0], command)


def limit(which: int, most: int) -> None:
    """Permanently lower a resource limit of this process to `most`, or keep a lower one."""
    most = min([most, *(value for value in resource.getrlimit(which) if value != resource.RLIM_INFINITY)])
    resource.setrlimit(which, (most, most))


def _taken(file: Path) -> dict[str, Any]:
    """Read the JSON file with the rules of this process, and remove the file."""
    rules: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    return rules


def _neighbour(name: str) -> ModuleType:
    """Import a module of this folder without importing the package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"no {name}.py beside {__file__}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(rules: str, arguments: list[str]) -> None:
    """Isolate this process if there is a file of rules, and run the worker in it, or the tool that the rules name."""
    given = _taken(Path(rules)) if rules else {}
    if "command" in given:
        become_tool(**given)
    script = given.pop("script", "")
    if not script:
        counters = _neighbour("counters")
        os.environ[counters.VARIABLE] = counters.opened()
    os.environ[ISOLATED_BY] = shut_in(**given) if rules else ""
    sys.argv = [script or WORKER, *arguments]
    if script:
        runpy.run_path(script, run_name="__main__")
    else:
        runpy.run_module(WORKER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
