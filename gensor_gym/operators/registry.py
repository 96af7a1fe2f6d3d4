"""Every operator by name: its factory, and its special cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gensor_gym.operators.reference import REFERENCES, Reference
from gensor_gym.operators.types import Operator
from gensor_gym.registry import register

Factory = TypeVar("Factory", bound=Callable[..., Operator])
TorchCall = Callable[[Any, Operator], Callable[..., Any]]
"""From torch and an operator to the call that a torch user would write, a function of its reads."""

FACTORIES: dict[str, Callable[..., Operator]] = {}
"""Every operator's function by its name."""
TORCH: dict[str, TorchCall] = {}
"""Torch's call of an operator, if it does not follow from accesses and body."""


def register_operator(reference: Reference | None = None, torch: TorchCall | None = None) -> Callable[[Factory], Factory]:
    """A decorator for the function that makes an operator: text of that name is read from then on.

    Without a `reference` (float64 NumPy, of the operator and the arrays it reads) the operator's own axes and accesses are
    evaluated; without `torch` its call is an einsum, a sum, a maximum or a map, where no read is a window.
    ValueError for a name that another module has.
    """

    def add(factory: Factory) -> Factory:
        name = factory.__name__
        register("operator", FACTORIES, name, factory, factory.__module__)
        if reference is not None:
            REFERENCES[name] = reference
        if torch is not None:
            TORCH[name] = torch
        return factory

    return add
