"""Start of a worker process: command, environment variables, files that an isolated worker may read and write."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gensor_gym.cache.folders import VARIABLE as CACHE
from gensor_gym.cache.folders import cache_dir, private_dir
from gensor_gym.codegen.runtime.compile import compile_text, key_of
from gensor_gym.measure.devices.machine_lock import lock_path
from gensor_gym.measure.devices.opened import Opened, opened_by
from gensor_gym.measure.isolation import launch
from gensor_gym.measure.isolation.environment import OF_USER, passed_on
from gensor_gym.measure.isolation.readable import WRITTEN, readable
from gensor_gym.measure.workers.affinity import OMP_ENVIRONMENT

COMPILER = "nvrtc"
"""Name of the kind of worker that compiles CUDA kernels and has no device."""
SWITCH = "GENSOR_GYM_ISOLATION"
"""Environment variable that switches isolation: `off` starts workers without it, for systems on which isolated workers fail.
"""
_KEPT_SECONDS = 7 * 24 * 3600.0
_ROOT = str(Path(__file__).resolve().parents[3])


@dataclass(frozen=True)
class Start:
    """How `process.py` starts a worker: command and environment variables.

    `scratch` is the folder to which an isolated worker may write; None without isolation.
    """

    command: list[str]
    variables: dict[str, str]
    libraries: dict[str, str] = field(default_factory=dict)
    """Key of a C source -> path of its library, which is compiled before the worker starts."""
    scratch: Path | None = None

    @property
    def hint(self) -> str:
        """Return advice for the error message about a worker that ends before it has loaded anything; empty without isolation."""
        return "" if self.scratch is None else f" (it was shut in; ${SWITCH}=off starts workers that are not)"

    def enclosed(self, request: Any) -> Any:
        """Return a request with the content of the files that an isolated worker may not open. Other requests are unchanged.

        A file is included only if no other user can write it.
        """
        return request.enclosed() if self.scratch is not None and hasattr(request, "enclosed") else request


def start_of(device: str, shut_in: bool | None = None, memory: int = 0) -> Start:
    """Choose command and environment variables of a worker for a device. `shut_in` isolates it if it runs kernels' machine code.

    If `shut_in` is None, $GENSOR_GYM_ISOLATION decides. An isolated worker may allocate `memory` bytes (0: any number).
    ValueError for an unknown device, or an invalid value of the variable.
    """
    opened = None if device == COMPILER else opened_by(device)
    if opened is None or not opened.shut_in or not (wanted() if shut_in is None else shut_in):
        return Start(launched(""), _variables(passed_on(os.environ, OF_USER)))
    return _shut_in(opened, memory)


def _shut_in(opened: Opened, memory: int) -> Start:
    """Prepare an isolated worker: its rules, its libraries, and a new folder in the cache, the only one to which it may write.

    The folder is not in /tmp, which may be mounted noexec.
    """
    libraries = {key_of(*text): str(compile_text(*text)) for text in opened.texts()}
    base = private_dir("scratch")
    _remove_unused(base)
    scratch = Path(tempfile.mkdtemp(prefix="worker-", dir=base))
    paths = {"readable": [*readable(), *libraries.values(), str(lock_path())], "writable": [*WRITTEN, str(scratch)]}
    file = scratch / "rules.json"
    file.write_text(json.dumps(paths | {"memory": memory}), encoding="utf-8")
    own = {"HOME": str(scratch), "TMPDIR": str(scratch), CACHE: str(cache_dir())}
    return Start(launched(str(file)), _variables({**passed_on(os.environ), **own}), libraries, scratch)


def _remove_unused(base: Path) -> None:
    limit = time.time() - _KEPT_SECONDS
    for old in base.glob("worker-*"):
        with suppress(FileNotFoundError):  # another run has removed it
            if old.stat().st_mtime < limit:
                shutil.rmtree(old, ignore_errors=True)


def launched(rules: str) -> list[str]:
    """Return the command that starts a worker, or a tool, with the file of its rules (`isolation/launch.py`)."""
    return [sys.executable, "-P", str(Path(launch.__file__).resolve()), rules]


def _variables(given: dict[str, str]) -> dict[str, str]:
    paths = [_ROOT, *filter(None, [given.get("PYTHONPATH")])]
    return {**OMP_ENVIRONMENT, **given, "PYTHONPATH": os.pathsep.join(paths)}


def wanted() -> bool:
    """Whether workers should be isolated; ValueError for an invalid value of $GENSOR_GYM_ISOLATION."""
    said = os.environ.get(SWITCH, "on").strip() or "on"
    if said not in ("on", "off"):
        raise ValueError(f"${SWITCH}={said!r}: expected on or off")
    return said == "on"
