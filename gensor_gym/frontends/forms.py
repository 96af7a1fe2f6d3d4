"""Convert torch's flattened arguments and results to the nested form that a network describes (`networks.forms`)."""

from __future__ import annotations

import inspect
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gensor_gym.networks.forms import Fixed, Form, Made

Examples = Sequence[Any] | Mapping[str, Any]
"""Tensors in tuples, lists and dicts. Other objects among them are equal at every call."""
FIXED = (bool, int, float, str, type(None))
"""Classes of arguments that are not tensors and are equal at every call."""
DICTS = (dict, OrderedDict, defaultdict)


def form_of(spec: Any, ends: Iterator[Form], make: Callable[[Any], Callable[[list[Any]], Any]] | None = None) -> Form:
    """Build a form (nested tuples, lists and dicts) with the structure of torch's tree specification and the leaves `ends`.

    `make` maps the specification of an object of another class to a function that makes the object from its parts. If `make` is
    None, such a class raises ValueError.
    """
    if spec.is_leaf():
        return next(ends)
    parts = [form_of(part, ends, make) for part in spec.children()]
    if isinstance(spec.context, type) and hasattr(spec.context, "_make"):  # a named tuple
        return spec.context._make(parts)
    if isinstance(spec.type, type) and issubclass(spec.type, dict) and (make is None or spec.type in DICTS):
        keys = spec.context[1] if spec.type is defaultdict else spec.context
        return (OrderedDict if spec.type is OrderedDict else dict)(zip(keys, parts, strict=True))
    if spec.type in (tuple, list) or spec.type.__module__ == "torch.return_types":
        return spec.type(parts)
    if make is not None:
        return Made(make(spec), tuple(parts))
    raise ValueError(f"a {spec.type.__name__}: expected tensors, in tuples, lists and dicts")


def fixed_or(number: Iterator[int], given: Any, is_fixed: bool) -> Form:
    """Return a leaf of a form: the constant `given` if `is_fixed`, else the index of the next tensor."""
    return Fixed(given) if is_fixed else next(number)


def names_of(function: Callable[..., Any], places: int) -> list[str]:
    """Return the names of the first `places` positional arguments. Those that go to `*args` are named `args_0` and so on."""
    found: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            found += [f"{parameter.name}_{number}" for number in range(places - len(found))]
        elif parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            found.append(parameter.name)
    return found[:places]


def arguments_of(function: Callable[..., Any], given: Mapping[str, Form]) -> dict[str, Form]:
    """Return the form of each argument by name, in the function's order.

    A missing argument has its default if its class is in `FIXED`. `given` has the forms of the passed arguments. Names that the
    function does not have go to `*args` and `**kwargs`, at their position.
    """
    parameters, found = inspect.signature(function).parameters, dict[str, Form]()
    for name, parameter in parameters.items():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            found |= {other: form for other, form in given.items() if other not in parameters and other not in found}
        elif not isinstance(parameter.default, FIXED):
            found |= {name: given[name]} if name in given else {}
        else:
            form = given.get(name, Fixed(parameter.default))
            found[name] = Fixed(form.value, parameter.default) if isinstance(form, Fixed) else form
    return found


def ends_of(given: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of every leaf of a tree of tuples, lists and dicts. `place` is the tree's path."""
    if isinstance(given, Mapping):
        for key, part in given.items():
            yield from ends_of(part, f"{place}[{key!r}]")
    elif isinstance(given, list | tuple):
        for number, part in enumerate(given):
            yield from ends_of(part, f"{place}[{number}]")
    else:
        yield place, given
