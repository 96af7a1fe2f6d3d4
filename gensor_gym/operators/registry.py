"""Registration of operators by name: the function that makes the operator, its reference in NumPy, and its call in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gensor_gym.operators.reference import REFERENCES, Reference
from gensor_gym.operators.types import Operator
from gensor_gym.registry import register

Factory = TypeVar("Factory", bound=Callable[..., Operator])
TorchCall = Callable[[Any, Operator], Callable[..., Any]]
"""Type of a function of (torch, operator), which returns the torch function that a user would call with the arrays the operator
reads."""

FACTORIES: dict[str, Callable[..., Operator]] = {}
"""Name of an operator -> function that makes it."""
TORCH: dict[str, TorchCall] = {}
"""Name of an operator -> torch's call of it, for operators whose call does not follow from accesses and body."""


def register_operator(reference: Reference | None = None, torch: TorchCall | None = None) -> Callable[[Factory], Factory]:
    """Return a decorator that registers the function of an operator under its name, which operators' text may then use.

    `reference` computes the output in float64 NumPy from the operator and the arrays it reads; without it the operator's axes and
    accesses are evaluated. `torch` gives the equivalent call of torch. Without it the call is an einsum, a sum, a maximum or a
    map, if no input is read through windows. ValueError for a name that another module has taken.
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
