"""Torch's flattened arguments and results as forms of a network."""

from __future__ import annotations

import inspect
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gensor_gym.networks.forms import Fixed, Form, Made

FIXED = (bool, int, float, str, type(None))
"""Classes of arguments other than tensors: they are the same at every call."""
DICTS = (dict, OrderedDict, defaultdict)


def form_of(spec: Any, ends: Iterator[Form], make: Callable[[Any], Callable[[list[Any]], Any]] | None = None) -> Form:
    """A tree specification of torch with these leaves.

    `make` gives the constructor of a specification's class from its parts; without it ValueError for classes other than torch's
    and Python's.
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
    """The leaf of a form: the number of the next tensor, or a constant."""
    return Fixed(given) if is_fixed else next(number)


def names_of(function: Callable[..., Any], places: int) -> list[str]:
    """Names of the first `places` positional arguments; those that go to `*args` are `args_0` and so on."""
    found: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            found += [f"{parameter.name}_{number}" for number in range(places - len(found))]
        elif parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            found.append(parameter.name)
    return found[:places]


def arguments_of(function: Callable[..., Any], given: Mapping[str, Form]) -> dict[str, Form]:
    """Forms of a function's arguments by name, in its order; a missing one is its default if that is one of `FIXED`.

    Other names, which go to `*args` and `**kwargs`, are at the position of these.
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
    """(Place, value) of everything in a tree of examples that is no tuple, list or dict."""
    if isinstance(given, Mapping):
        for key, part in given.items():
            yield from ends_of(part, f"{place}[{key!r}]")
    elif isinstance(given, list | tuple):
        for number, part in enumerate(given):
            yield from ends_of(part, f"{place}[{number}]")
    else:
        yield place, given
