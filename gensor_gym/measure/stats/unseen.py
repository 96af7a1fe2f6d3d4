"""Check of a kernel that somebody else wrote: it must not be faster on inputs that it has seen than on others.

A kernel that keeps its results, keyed by its inputs, is right on all inputs, and fast on those of its previous call. So it gets
draws that it has not seen, each for two calls. Outputs are compared with the references after each call. In between the output
stays, so a kernel that skips its work where an answer stands is found, too.
"""

from __future__ import annotations

FASTER, AT_LEAST = 2.0, 50e-6
"""Factor and seconds by which second calls may be faster than first calls: estimates of the effect of warm caches and of the
wake-up of threads. The shortest first call is compared with the shortest second call.
"""
ROUNDS = 6
"""Largest number of rounds of three draws. A single round accused one of twenty honest kernels, on a machine whose two cores were
busy with the work of others (Zen 4)."""


def fault_of_calls(first: list[float], second: list[float]) -> str:
    """Compare first and second calls on the same inputs, in seconds. Return a message if the second are too fast; else empty."""
    fresh, again = min(first), min(second)
    if fresh <= FASTER * again + AT_LEAST:
        return ""
    return f"a call takes {fresh:.3g} s on inputs that it has not seen, and {again:.3g} s when repeated: the kernel keeps results"
