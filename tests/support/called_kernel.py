"""What tests of calls to one loaded kernel share: the operator, and threads that call at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from gensor_gym import operators

OP = operators.resolve_one("gemm(m=24, n=32, k=16)")
MORE_THAN_KEPT = 12
"""Outputs; a kernel keeps the memory of fewer."""


def in_threads(call: Callable[[int], None], count: int) -> None:
    """The call in so many threads at once, each with its number; what one raises is raised here."""
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(call, range(count)))
