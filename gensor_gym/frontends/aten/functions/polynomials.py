"""Polynomials as expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gensor_gym.frontends.builder import of


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Return the expression of a polynomial in x by Horner's rule. `coefficients` begin with the constant term."""
    made: Any = coefficients[-1]
    for one in reversed(coefficients[:-1]):
        made = of("add", one, of("multiply", x, made))
    return made
