"""Calls of CuPy in this project's text, held against the signatures of a CuPy that is installed; neither needs a GPU."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "gensor_gym/measure/devices/cuda.py", "gensor_gym/measure/answers/reference_kernels.py", "gensor_gym/codegen/runtime/cuda.py",
    "gensor_gym/codegen/runtime/cuda_arrays.py", "experiments/device/stages/environment.py",
    "gensor_gym/networks/gpu/function.py", "experiments/device/stages/networks.py",
)  # fmt: skip
"""Files that call CuPy."""
NAMES = ("cupy", "self._cupy", "self.module", "module")
"""What CuPy is called there."""
OBJECTS: dict[str, tuple[str, ...]] = {
    "cuda.Device": ("synchronize", "id", "compute_capability"),
    "cuda.Stream": ("begin_capture", "end_capture", "synchronize", "wait_event"), "cuda.ExternalStream": (),
    "cuda.Graph": ("upload", "launch"),
    "cuda.Event": ("record", "synchronize"), "cuda.MemoryPointer": ("memset", "memset_async", "copy_from_device", "ptr"),
    "ndarray": ("set", "view", "reshape", "flags", "data", "device", "nbytes", "size", "dtype", "shape"),
    "RawModule": ("get_function",),
    "RawKernel": ("num_regs", "local_size_bytes", "max_dynamic_shared_size_bytes"),
}  # fmt: skip
"""Classes -> what of their objects is used."""
METHODS = {
    "begin_capture": "cuda.Stream", "end_capture": "cuda.Stream", "wait_event": "cuda.Stream", "upload": "cuda.Graph",
    "launch": "cuda.Graph",
    "record": "cuda.Event",
    "memset": "cuda.MemoryPointer", "memset_async": "cuda.MemoryPointer", "copy_from_device": "cuda.MemoryPointer",
    "get_function": "RawModule", "set": "ndarray",
}  # fmt: skip
"""Methods whose names nothing but these classes has in the files above."""


def calls(text: str) -> Iterator[tuple[str, int, int, tuple[str, ...]]]:
    """(name behind `cupy.` or method, line, positional arguments, names of the others) of every call that names what it calls."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or any(isinstance(one, ast.Starred) for one in node.args):
            continue
        name = ast.unparse(node.func)
        owner = next((known for known in NAMES if name.startswith(f"{known}.")), None)
        names = tuple(one.arg for one in node.keywords if one.arg)
        if "(" in name.removeprefix(f"{owner}."):
            owner = None  # a method of what another call returned
        if owner is not None and (owner != "module" or "get_function" not in name):
            yield name.removeprefix(f"{owner}."), node.lineno, len(node.args), names
        elif isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            yield f"{METHODS[node.func.attr]}.{node.func.attr}", node.lineno, len(node.args) + 1, names


def found(cupy: ModuleType, name: str) -> Any:
    """What stands at a dotted name; AttributeError where nothing does."""
    at: Any = cupy
    for part in name.split("."):
        at = getattr(at, part)
    return at


def signature_of(what: Any) -> inspect.Signature | None:
    """Of a function, or of one of Cython's by the first line of its words; None where neither says."""
    try:
        return inspect.signature(what)
    except (TypeError, ValueError):
        pass
    given = re.match(r"[\w.]+\((.*?)\)(?: ->.*)?$", (getattr(what, "__doc__", None) or "").strip().partition("\n")[0])
    if given is None:
        return None
    kind, parameters = inspect.Parameter.POSITIONAL_OR_KEYWORD, []
    for part in filter(None, map(str.strip, given.group(1).split(","))):
        if part == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        word, _, default = part.partition("=")
        name = word.partition(":")[0].split()[-1]
        if name.startswith("*"):
            return None
        parameters.append(inspect.Parameter(name, kind, default=default or inspect.Parameter.empty))
    if isinstance(what, type(str.join)) and not (parameters and parameters[0].name == "self"):
        parameters.insert(0, inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY))
    return inspect.Signature(parameters)


def misfits(cupy: ModuleType, path: Path) -> list[str]:
    """Calls of a file that this CuPy does not take, in words."""
    wrong = []
    for name, line, count, names in calls(path.read_text(encoding="utf-8")):
        try:
            signature = signature_of(found(cupy, name))
            if signature is not None:
                signature.bind(*[None] * count, **dict.fromkeys(names))
        except (AttributeError, TypeError) as error:
            wrong.append(f"{path.name}:{line}: {name}: {error}")
    return wrong
