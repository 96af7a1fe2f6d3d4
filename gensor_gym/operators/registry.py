"""Registration of operators by name: the function that makes the operator, and optional special cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gensor_gym.operators.reference import REFERENCES, Reference
from gensor_gym.operators.types import Operator
from gensor_gym.registry import register

Factory = TypeVar("Factory", bound=Callable[..., Operator])
TorchCall = Callable[[Any, Operator], Callable[..., Any]]
"""Function of (torch, operator). It returns the torch function that a user would call with the operator's reads."""

FACTORIES: dict[str, Callable[..., Operator]] = {}
"""Functions that make operators, by the operator's name."""
TORCH: dict[str, TorchCall] = {}
"""Torch's call of an operator, by the operator's name, if the call does not follow from accesses and body."""


def register_operator(reference: Reference | None = None, torch: TorchCall | None = None) -> Callable[[Factory], Factory]:
    """Decorator that registers the function of an operator under its name, so that operators' text may use the name.

    `reference` computes the output in float64 NumPy from the operator and the arrays it reads; without it the operator's axes and
    accesses are evaluated. Without `torch` the call in torch is an einsum, a sum, a maximum or a map, if no read is a window.
    ValueError for a name that another module has taken.
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
