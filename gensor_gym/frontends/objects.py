"""Results of modules that are objects with tensors in them, such as caches of keys and values.

torch's export gets them as `Opened` objects with visible tensors, and each call rebuilds them. A class that is registered with
torch's pytree (its trees of containers) keeps its registration.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from gensor_gym.frontends.forms import FIXED


class Opened:
    """An object as torch's export sees it: the attributes that have tensors, and a copy of the object without them."""

    def __init__(self, empty: Any, attributes: dict[str, Any]) -> None:
        """Keep the copy without tensors, `empty`, and the `attributes`: trees in which objects are `Opened` too."""
        self.empty, self.attributes = empty, attributes


def _flat(given: Opened) -> tuple[list[Any], tuple[Any, tuple[str, ...]]]:
    return list(given.attributes.values()), (given.empty, tuple(given.attributes))


def _same(parts: Iterable[Any], context: tuple[Any, tuple[str, ...]]) -> Opened:
    empty, names = context
    return Opened(empty, dict(zip(names, parts, strict=True)))


pytree.register_pytree_node(Opened, _flat, _same)


@dataclass(frozen=True)
class Maker:
    """Function that makes an object of class `kind` from its parts, as torch's pytree does.

    An `Opened` becomes its original object.
    """

    kind: type
    context: Any

    @classmethod
    def of(cls, spec: pytree.TreeSpec) -> Maker:
        """Return the function that makes the outermost object of a torch tree from its parts."""
        return cls(spec.type, spec.context)

    def __call__(self, parts: list[Any]) -> Any:
        """Make the object."""
        found = pytree.SUPPORTED_NODES[self.kind].unflatten_fn(parts, self.context)
        if not isinstance(found, Opened):
            return found
        made = copy.copy(found.empty)
        vars(made).update(found.attributes)
        return made


@contextlib.contextmanager
def with_opened_results(module: torch.nn.Module) -> Iterator[None]:
    """Let a module return `Opened` in place of objects of classes unknown to torch, inside the `with` block."""
    handle = module.register_forward_hook(lambda *called: opened(called[-1]))
    try:
        yield
    finally:
        handle.remove()


def opened(tree: Any) -> Any:
    """Replace objects in a tree that contain tensors, and whose classes torch does not know, by `Opened`. Return the tree."""
    return pytree.tree_map(_opened, tree)


def _opened(end: Any) -> Any:
    if isinstance(end, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, *FIXED)) or not hasattr(end, "__dict__"):
        return end
    empty, attributes = copy.copy(end), {}
    for name, value in vars(end).items():
        if _holds_tensors(value, {id(end)}):
            attributes[name] = opened(value)
            vars(empty)[name] = None  # keeps the attribute's position
    return Opened(empty, attributes)


def _holds_tensors(tree: Any, seen: set[int]) -> bool:
    """Return whether a tree, or an object in it, contains a tensor. `seen` are ids of objects that were already searched."""
    for end in pytree.tree_leaves(tree):
        if isinstance(end, torch.Tensor):
            return True
        if id(end) in seen or not hasattr(end, "__dict__") or isinstance(end, type | torch.nn.Module):
            continue
        seen.add(id(end))
        if any(_holds_tensors(value, seen) for value in vars(end).values()):
            return True
    return False
