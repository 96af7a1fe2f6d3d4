"""Polynomials as expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gensor_gym.frontends.builder import of


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """A polynomial by Horner's rule; coefficients from the lowest power on."""
    made: Any = coefficients[-1]
    for one in reversed(coefficients[:-1]):
        made = of("add", one, of("multiply", x, made))
    return made
