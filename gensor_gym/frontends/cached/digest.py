"""Digest (hash) of everything on which torch's export of a module depends: attributes, tensors and files of code."""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
import pickle
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType, ModuleType
from typing import Any

import torch

from gensor_gym.cache.sources import sources
from gensor_gym.frontends.forms import Examples

OWN_VERSION = {"torch", "numpy", "gensor_gym", *sys.stdlib_module_names} - {"__main__"}
"""Top-level packages whose files are not hashed, because their version is."""
LARGE = 1 << 18
"""Bytes from which on a tensor is hashed by a thread of its own."""
MOST_THREADS = 4


class _Canonical(pickle.Pickler):
    """Pickles objects for hashing: equal objects give equal bytes in every process. Elements of tensors are left out."""

    def __init__(self) -> None:
        """Begin with no bytes written and no tensors met."""
        self.written = io.BytesIO()
        super().__init__(self.written, protocol=4)
        self.fast = True  # without references to equal objects, which differ from process to process
        self.tensors: list[torch.Tensor] = []
        """The tensors of the objects in the order in which they were met, each contiguous."""
        self.modules: set[str] = set()

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor):
            return self._tensor(obj)
        if isinstance(obj, set | frozenset):  # the order of a set of texts differs from process to process
            if not all(isinstance(one, str | int) for one in obj):
                raise pickle.PicklingError("a set of objects")
            return ("set", *sorted(map(repr, obj)))
        if isinstance(obj, type | FunctionType):
            self.modules.add(obj.__module__)
        return None

    def _tensor(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_quantized:
            raise pickle.PicklingError(f"a tensor on {tensor.device}, {tensor.layout}")
        self.tensors.append(tensor if _is_plain(tensor) else tensor.detach().contiguous().resolve_conj().resolve_neg())
        return ("tensor", str(tensor.dtype), tuple(tensor.shape), tensor.stride())


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether the elements of a tensor lie in its memory one after another, as they are.

    Other classes of tensors may have no memory of their own, and conjugated or negated ones are views of other elements.
    """
    as_they_are = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    return as_they_are and type(tensor) in (torch.Tensor, torch.nn.Parameter)


def _elements(tensor: torch.Tensor) -> ctypes.Array[ctypes.c_char] | memoryview:
    """Return a contiguous tensor's memory; of a plain tensor without torch, whose operations take turns with other threads."""
    if not _is_plain(tensor):
        return tensor.detach().reshape(-1).view(torch.uint8).numpy().data
    return (ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr())


def _hashed(tensors: Iterable[torch.Tensor]) -> Iterator[Any]:
    """Yield in order, for each contiguous tensor, its SHA-256 or, if it is small, its elements. Threads hash large tensors."""
    parts = [_elements(tensor) for tensor in tensors]
    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
        found = pool.map(lambda part: hashlib.sha256(part).digest(), [part for part in parts if len(part) >= LARGE])
        for part in parts:
            yield next(found) if len(part) >= LARGE else part


def program_digest(module: torch.nn.Module, example_inputs: Examples) -> str | None:
    """Hash everything on which torch's export of a module depends. Return the SHA-256; None if a part cannot be hashed.

    It covers all attributes and tensors of the module, types and shapes of the inputs, versions, and the name, size and time of
    change of each Python file that the module's code can call. It does not cover values that a program changed in these files'
    modules after import.
    """
    of_module, of_inputs = _Canonical(), _Canonical()
    try:
        of_module.dump(module)
        of_inputs.dump(example_inputs)
        files = _files(of_module.modules | of_inputs.modules)
        elements = [*_hashed(of_module.tensors)]
    except (pickle.PicklingError, AttributeError, TypeError, ValueError, RecursionError, RuntimeError, OSError):
        return None
    settings = sys.version, torch.__version__, torch.get_default_dtype(), torch.is_autocast_enabled("cpu")
    found = hashlib.sha256(repr((sources(), settings, files)).encode())
    found.update(of_module.written.getbuffer())
    found.update(of_inputs.written.getbuffer())
    for part in elements:
        found.update(part)
    return found.hexdigest()


def _files(modules: Iterable[str]) -> list[tuple[str, int, int]]:
    """Return (path, size, time of change in ns) of the files of modules and of the modules that they import, sorted."""
    waiting, seen = list(modules), set[str]()
    found = []
    while waiting:
        name = waiting.pop()
        if name in seen or name.partition(".")[0] in OWN_VERSION:
            continue
        seen.add(name)
        path = os.path.abspath(sys.modules[name].__file__ or "") if name in sys.modules else ""
        known = os.stat(path)
        found.append((path, known.st_size, known.st_mtime_ns))
        for value in vars(sys.modules[name]).values():
            if isinstance(value, ModuleType):
                waiting.append(value.__name__)
            elif isinstance(value, type | FunctionType):
                waiting.append(value.__module__)
    return sorted(found)
