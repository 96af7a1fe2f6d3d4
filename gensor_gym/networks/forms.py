"""Nested form of a network's arguments and results: tensors in tuples, lists and dicts, and their data types."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_TORCHS = ("bfloat16", "complex32")
"""Data types of torch that NumPy does not have."""
Form = Any
"""A tree of tuples, lists and dicts, and in results also of `Made`. A leaf is the index of a tensor, or a `Fixed`."""


@dataclass(frozen=True)
class Fixed:
    """An argument or result that is not a tensor: a number, a text or None, equal at every call.

    `default` is the value of an omitted argument; `...` means that it is required.
    """

    value: Any
    default: Any = ...

    def is_same(self, given: Any) -> bool:
        """Return whether `given` has the type and the value of this constant."""
        return type(given) is type(self.value) and bool(given == self.value)


@dataclass(frozen=True)
class Made:
    """An object of a class other than tuple, list or dict: the function that makes it, and the forms of its arguments."""

    make: Callable[[list[Any]], Any]
    parts: tuple[Form, ...]


def changed(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Replace each leaf of a tree by `change(leaf)`, and each `Made` by its object. Return the tree.

    Containers keep their class.
    """
    if isinstance(tree, Made):
        return tree.make([changed(part, change) for part in tree.parts])
    if isinstance(tree, dict):
        made = copy.copy(tree)
        made.update((key, changed(part, change)) for key, part in tree.items())
        return made
    if isinstance(tree, list | tuple):
        parts = [changed(part, change) for part in tree]
        return tree._make(parts) if hasattr(tree, "_make") else type(tree)(parts)
    return change(tree)


def put_together(form: Form, outputs: Sequence[Any]) -> Any:
    """Arrange outputs in a nested form, whose leaves are indices of outputs."""
    return changed(form, lambda end: end.value if isinstance(end, Fixed) else outputs[end])


def is_flat(takes: Mapping[str, Form]) -> bool:
    """Return whether arguments are one tensor each, in order, followed only by optional arguments with their defaults."""
    forms = list(takes.values())
    count = sum(isinstance(form, int) for form in forms)
    rest = (isinstance(form, Fixed) and form.is_same(form.default) for form in forms[count:])
    return forms[:count] == list(range(count)) and all(rest)


def taken_apart(called: str, takes: Mapping[str, Form], given: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """Return the tensors in a call's arguments in order. `takes` has the forms of all arguments by name.

    `called` names the network in messages, `given` and `named` are the positional and keyword arguments. TypeError for arguments
    with other names or another form, ValueError for another value of a `Fixed` argument.
    """
    by_place = dict(zip(takes, given, strict=False))
    left_out = {name: form.default for name, form in takes.items() if isinstance(form, Fixed) and form.default is not ...}
    arguments = {**left_out, **by_place, **named}
    if set(arguments) != set(takes) or len(given) > len(takes) or set(by_place) & set(named):
        said = ", ".join([*(f"argument {place}" for place in range(len(given))), *named])
        raise TypeError(f"{called}: inputs {said}, expected {', '.join(takes)}")
    found: dict[int, Any] = {}
    for name, form in takes.items():
        _take(f"{called}: input {name}", form, arguments[name], found)
    return [found[number] for number in sorted(found)]


def _take(place: str, form: Form, given: Any, found: dict[int, Any]) -> None:
    if isinstance(form, Fixed):
        if not form.is_same(given):
            said = given if isinstance(given, bool | int | float | str | None) else f"a {type(given).__name__}"
            raise ValueError(f"{place} is {said}: expected {form.value!r}, for which it was compiled")
    elif isinstance(form, Mapping):
        if not isinstance(given, Mapping) or set(given) != set(form):
            said = f"a dict of {', '.join(map(str, given))}" if isinstance(given, Mapping) else f"a {type(given).__name__}"
            raise TypeError(f"{place} is {said}: expected a dict of {', '.join(map(str, form))}")
        for key, part in form.items():
            _take(f"{place}[{key!r}]", part, given[key], found)
    elif isinstance(form, list | tuple):
        if not isinstance(given, list | tuple) or len(given) != len(form):
            said = f"a {type(given).__name__}" + (f" of {len(given)}" if isinstance(given, list | tuple) else "")
            raise TypeError(f"{place} is {said}: expected a {type(form).__name__} of {len(form)}")
        for number, part in enumerate(form):
            _take(f"{place}[{number}]", part, given[number], found)
    elif isinstance(given, list | tuple | Mapping | bool | int | float | str | None):
        raise TypeError(f"{place} is {'None' if given is None else f'a {type(given).__name__}'}: expected a tensor")
    else:
        found[form] = given


_MOST = {"int32": 2.0**31, "int64": 2.0**63}
"""Integer type -> magnitude that numbers cast to it must stay below."""
Types = Mapping[int, tuple[str, ...]]
"""Index of an output -> data types to which it is cast, in order."""


def typed(types: Types, outputs: Sequence[Any]) -> tuple[Any, ...]:
    """Cast outputs, of NumPy or torch, to the data types that users get (`Network.types`). Return all outputs.

    ValueError for a NumPy array if NumPy does not have the type.
    """
    return tuple(_as_types(made, types[place]) if place in types else made for place, made in enumerate(outputs))


def check_whole(called: str, types: Types, outputs: Sequence[Any]) -> None:
    """Raise ValueError if a float32 output that is cast to integers exceeds their range."""
    for place, names in types.items():
        made, most = outputs[place], _MOST.get(names[0])
        if most is not None and "float" in str(made.dtype) and not bool((abs(made) < most).all()):
            raise ValueError(f"{called}: output {place}, of {names[-1]}: expected whole numbers of {names[0]}")


def _as_types(made: Any, names: Sequence[str]) -> Any:
    for name in names:
        if not hasattr(made, "astype"):
            made = made.to(getattr(sys.modules["torch"], name))
        elif name in _TORCHS:
            raise ValueError(f"an output of {name} as a NumPy array: expected inputs of torch, which has that type")
        else:
            with np.errstate(invalid="ignore", over="ignore"):  # torch does not warn either
                made = made.astype(name)
    return made
