"""A cache of converted modules: torch's export is skipped for a module that was converted before.

A file in the user's cache has the network, with names of the module's weights instead of their arrays. It also has example inputs
and some elements of the module's results. A stored network is used only if the module still computes these elements.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from gensor_gym.cache.folders import private_dir
from gensor_gym.cache.owned import read_own
from gensor_gym.files import write_whole
from gensor_gym.frontends.cached.digest import program_digest
from gensor_gym.frontends.constants import as_array
from gensor_gym.frontends.forms import Examples
from gensor_gym.frontends.objects import opened
from gensor_gym.networks.forms import changed
from gensor_gym.networks.network import Network, held

FOLDER = "networks"
MOST_BYTES = 64 << 20
"""Largest number of bytes of a stored network, and of its constants that are not weights of the module."""
MOST_FILES = 128
"""Number of stored networks that are kept: those written last. A module that is compiled repeatedly in training has new weights
each time."""
ELEMENTS = 4096
"""Largest number of elements of one result that are compared."""
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 2e-2}
"""Type -> largest difference between two runs of a module, as a share of the largest magnitude. Orders of sums differ."""


@dataclass(frozen=True)
class _Weight:
    """Reference to a tensor of the module by name, which replaces an equal array in a stored network.

    `dtype` is the array's type.
    """

    name: str
    dtype: str


def cached_network(module: Any, example_inputs: Examples) -> Network:
    """Convert a module to a network as `torch_export.from_torch` does, or read the network from the cache.

    The cache has the networks of modules that were converted before. Errors are those of `from_torch`.
    """
    path, known = looked_up(module, example_inputs)
    return known or converted(module, example_inputs, path)


def looked_up(
    module: Any, example_inputs: Examples, wait: Callable[[], object] = lambda: None
) -> tuple[Path | None, Network | None]:  # fmt: skip
    """Return the path of a module's network in the cache, and the network if the cache has it.

    The path is None if the module cannot be identified. `wait` is called before the module runs.
    """
    digest = program_digest(module, example_inputs) if isinstance(module, torch.nn.Module) else None
    path = None if digest is None else private_dir(FOLDER) / f"{digest}.pickle"
    return path, None if path is None else _read(path, module, wait)


def converted(module: Any, example_inputs: Examples, path: Path | None) -> Network:
    """Convert a module to a network as `torch_export.from_torch` does, and store it at `path`, that of `looked_up`."""
    from gensor_gym.frontends.torch_export import from_torch  # imports torch's export, which takes a second

    made = from_torch(module, example_inputs)
    if path is not None and (text := _text(made, module, example_inputs)) is not None:
        write_whole(path, text, 0o600)
        for old in sorted(path.parent.glob("*.pickle"), key=_written, reverse=True)[MOST_FILES:]:
            old.unlink(missing_ok=True)
    return made


def _written(path: Path) -> float:
    """Return the time at which a file was written; 0 if another process has removed it."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _read(path: Path, module: torch.nn.Module, wait: Callable[[], object]) -> Network | None:
    """Read a network from a file, and call `wait` before the module is run to check it.

    None if the file is missing, broken or not this user's, or if the module gives other results.
    """
    try:
        parts, constants, examples, results = pickle.loads(read_own(path))
        weights = dict(_weights(module))
        arrays = {name: np.array(_array(one, weights)) for name, one in constants.items()}  # copies: a module may be trained on
        wait()
        return Network(constants=arrays, **parts) if _agree(results, _results(module, examples)) else None
    except (ValueError, KeyError, TypeError, AttributeError, ImportError, IndexError, EOFError, pickle.UnpicklingError):
        return None


def _text(network: Network, module: torch.nn.Module, example_inputs: Examples) -> bytes | None:
    """Encode a network with example inputs and results for a file. None if it cannot be stored."""
    examples = _copied(example_inputs)
    parts = {one.name: getattr(network, one.name) for one in fields(network) if one.name != "constants"}
    constants, results = _constants(network, module), _results(module, examples)
    if results is None or sum(getattr(one, "nbytes", 0) for one in constants.values()) > MOST_BYTES:
        return None
    try:
        text = pickle.dumps((parts, constants, examples, results))
    except (pickle.PicklingError, AttributeError, TypeError):  # a form of objects whose classes are local to a function
        return None
    return text if len(text) <= MOST_BYTES else None


def _weights(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _array(one: np.ndarray | _Weight, weights: Mapping[str, torch.Tensor]) -> np.ndarray:
    """Return a constant's array, which may be the memory of a tensor of the module."""
    return held(np.asarray(as_array(weights[one.name])), one.dtype) if isinstance(one, _Weight) else one


def _constants(network: Network, module: torch.nn.Module) -> dict[str, np.ndarray | _Weight]:
    """Return the network's constants, with a `_Weight` in place of each array that equals a tensor of the module."""
    kinds = {value.name: value.dtype for value in network.graph.inputs if value.constant}
    shapes = {(array.shape, kinds[name]) for name, array in network.constants.items()}
    known = dict[tuple[str, tuple[int, ...], str], _Weight]()
    for name, tensor in _weights(module):
        for dtype in {kind for shape, kind in shapes if shape == tuple(tensor.shape)}:
            weight = _Weight(name, dtype)
            known[_content(_array(weight, {name: tensor})), tuple(tensor.shape), dtype] = weight
    return {name: known.get((_content(array), array.shape, kinds[name]), array) for name, array in network.constants.items()}


def _content(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data).hexdigest()


def _copied(examples: Examples) -> Any:
    given = dict(examples) if isinstance(examples, Mapping) else tuple(examples)
    return changed(given, lambda one: one.detach().clone() if isinstance(one, torch.Tensor) else one)


def _results(module: torch.nn.Module, examples: Any) -> list[Any] | None:
    """Run the module on example inputs. Return some elements of each tensor, and other results as text; None if it fails."""
    given = _copied(examples)
    try:
        with torch.no_grad():
            found = module(**given) if isinstance(given, dict) else module(*given)
    except Exception:  # of the user's code, of any class: torch's export reports it
        return None
    return [_some(one) if isinstance(one, torch.Tensor) else repr(one) for one in tree_leaves(opened(found))]


def _some(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().reshape(-1)
    return flat[:: -(-len(flat) // ELEMENTS) or 1].clone()


def _agree(wanted: list[Any], found: list[Any] | None) -> bool:
    """Return whether two lists of results are equal, up to the rounding of sums in another order."""
    return found is not None and len(wanted) == len(found) and all(map(_equal, wanted, found))


def _equal(wanted: Any, found: Any) -> bool:
    if not isinstance(wanted, torch.Tensor) or not isinstance(found, torch.Tensor):
        return bool(wanted == found)
    if wanted.shape != found.shape or wanted.dtype != found.dtype:
        return False
    if not wanted.is_floating_point():
        return torch.equal(wanted, found)
    finite = wanted[wanted.isfinite()]
    bound = TOLERANCES.get(wanted.dtype, 0.0) * float(finite.abs().max()) if len(finite) else 0.0
    return torch.allclose(wanted, found, rtol=0.0, atol=bound, equal_nan=True)
