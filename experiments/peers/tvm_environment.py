"""TVM's virtual environment, created once with pinned versions (tvm_requirements.txt). This process imports nothing from it."""

from __future__ import annotations

import hashlib
import itertools
import json
import operator
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.runs.files import make_folder, write_text
from experiments.peers.runs import Stopped, run_process
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.codegen.runtime.threads import ARCH
from gensor_gym.operators.types import Operator

REQUIREMENTS = Path(__file__).with_name("tvm_requirements.txt")
MADE = "made.txt"
"""File that marks a complete environment; it has the digest of the requirements from which that was created."""
PACKAGE = "apache-tvm"
LIBRARIES = ("tvm_ffi/lib/libtvm_ffi.so", "tvm/lib/libtvm_runtime.so")
"""Libraries that a TVM module needs, in the order in which they are loaded."""


@dataclass(frozen=True)
class TvmEnvironment:
    """Paths of TVM's virtual environment: its Python and the libraries that its modules need."""

    python: Path
    libraries: tuple[Path, ...]

    def variables(self, threads: int, cores: int) -> dict[str, str]:
        """Return the environment variables of TVM's processes: `threads` for its kernels and `cores` for the search itself.

        PYTHONSAFEPATH is set, since a folder of this repository contains a module called tvm.
        """
        mine = {"TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(cores), "PYTHONSAFEPATH": "1"}
        return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | mine


def requirements() -> dict[str, str]:
    """Return the required version of each package of TVM's environment."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("==") for line in lines if line.strip() and not line.startswith("#"))
    return {name: version for name, _, version in pairs}


def existing(folder: Path) -> TvmEnvironment | None:
    """Return TVM's environment in the folder; None unless it is complete and has the required versions."""
    marker = folder / MADE
    if not marker.exists() or marker.read_text(encoding="utf-8").strip() != _digest():
        return None
    packages = next(folder.glob("lib/python*/site-packages"), folder)
    found = TvmEnvironment((folder / "bin" / "python").absolute(), tuple((packages / name).absolute() for name in LIBRARIES))
    return found if all(path.exists() for path in (found.python, *found.libraries)) else None


def environment(folder: Path, limit_s: float = 1800.0, arguments: Sequence[str] = ()) -> TvmEnvironment:
    """Return TVM's environment in the folder, which is created if missing; `arguments` are further ones of `pip install`.

    Raise ValueError, with the last output of the failed step, if a step fails or takes more than `limit_s` seconds.
    """
    if (found := existing(folder)) is not None:
        return found
    make_folder(folder)
    log = folder.parent / f"{folder.name}.log"
    python = str((folder / "bin" / "python").absolute())
    steps = (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [python, "-m", "pip", "install", "--quiet", *arguments, "-r", str(REQUIREMENTS)],
        [python, "-P", "-c", "import tvm.s_tir.meta_schedule, xgboost"],
    )
    try:
        for step in steps:
            run_process(step, log, limit_s)
    except (OSError, Stopped) as error:
        raise ValueError(
            f"the environment of {PACKAGE} {requirements()[PACKAGE]} cannot be made in {folder}: {error}\n"
            f"It takes Linux on x86-64, Python 3.10 to 3.13, 1.5 GB, and a package index (more in {log})."
        ) from error
    write_text(folder / MADE, _digest() + "\n")
    if (found := existing(folder)) is None:
        raise ValueError(f"the environment in {folder} lacks {', '.join(LIBRARIES)} although {PACKAGE} was installed")
    return found


def compilers() -> None:
    """Check that a C++ compiler is installed, with which TVM links candidates; raise ValueError if not."""
    if not any(map(shutil.which, filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++")))):
        raise ValueError("TVM links what it builds with a C++ compiler: install g++ or clang++, or name one in $CXX")


def _digest() -> str:
    return hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()


# Wrap a module that TVM exported as a kernel that our workers can verify and time.

ENTRY = "gg_tvm"
FUNCTION = "main"
"""Name of the kernel's function in TVM's module."""


def tvm_kernel(op: Operator, module: Path, libraries: Sequence[Path]) -> Kernel:
    """Return a kernel whose entry calls a function that TVM exported, through its C interface, with TVM's own thread pool.

    `module` is the exported file. `libraries` are loaded before it in their order, libtvm_ffi first. The digest covers the
    module's content. Raise ValueError for data types other than float32 and for a missing file.
    """
    tensors = (*op.inputs, op.output)
    if other := {tensor.dtype for tensor in tensors} - {"float32"}:
        raise ValueError(f"TVM's kernels are compared in float32, got {', '.join(sorted(other))} in {op}")
    if missing := [str(path) for path in (module, *libraries) if not path.exists()]:
        raise ValueError(f"there is no file {', '.join(missing)}")
    values = {
        "DIGEST": hashlib.sha256(module.read_bytes()).hexdigest(),
        "LIBRARIES": ", ".join(json.dumps(str(path.resolve())) for path in libraries),
        "MODULE": json.dumps(str(module.resolve())),
        "FUNCTION": json.dumps(FUNCTION),
        "SHAPES": "\n".join(_sizes(i, tensor.shape) for i, tensor in enumerate(tensors)),
        "TENSORS": ", ".join(
            f"{{NULL, CPU, 0, {len(tensor.shape)}, FLOAT, 32, 1, shape{i}, strides{i}, 0}}" for i, tensor in enumerate(tensors)
        ),
    }
    source = Path(__file__).with_name("tvm_call.c").read_text(encoding="utf-8")
    for name, value in values.items():
        source = source.replace(f"@{name}@", value)
    return Kernel(op, "c", ARCH, source, (Launch(ENTRY),), 0)


def _sizes(number: int, shape: tuple[int, ...]) -> str:
    """Return C definitions of arrays with the extents and the strides of tensor number `number`."""
    strides = list(itertools.accumulate(reversed(shape[1:]), operator.mul, initial=1))[::-1]
    return "\n".join(
        f"static int64_t {name}{number}[] = {{{', '.join(map(str, values))}}};"
        for name, values in (("shape", shape), ("strides", strides))
    )
