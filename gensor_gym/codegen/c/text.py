"""Small tools for writing C: indented lines, linear index expressions, distinct identifiers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

RESERVED = frozenset(
    "t call task index first last thread context block chunk lane out packed source count workspace runtime inputs "
    "output auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while "
    "y y0 y1 j0 j1 jn yn fill least most main kept not_done".split()
)
"""Identifiers that no axis or tensor may take: C keywords and names that generated code uses."""


class Lines:
    """Lines of C text that are written with a current indentation."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def add(self, *lines: str) -> None:
        """Append lines at the current indentation; an empty line stays empty."""
        margin = "    " * self._depth
        self._lines.extend(margin + line if line else "" for line in lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write `head {` and `}` around the lines that are added within the `with` block, and indent these lines."""
        self.add(head + " {")
        self._depth += 1
        yield
        self._depth -= 1
        self.add("}")

    @contextmanager
    def blocks(self, heads: Iterable[str]) -> Iterator[None]:
        """Write nested blocks with `heads`, outermost first, around the lines that are added within the `with` block."""
        heads = list(heads)
        for head in heads:
            self.add(head + " {")
            self._depth += 1
        yield
        for _ in heads:
            self._depth -= 1
            self.add("}")

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"


def linear(terms: Iterable[tuple[int, str]], constant: int = 0) -> str:
    """Return the C text of a sum of (coefficient, name) terms and a constant, such as `m * 1024 + k + 5`.

    Zero terms are omitted.
    """
    kept = [(c, name) for c, name in terms if c != 0 and name != "0"]
    words = [name if c == 1 else f"{f'({name})' if ' ' in name else name} * {c}" for c, name in kept]
    if not words:
        return str(constant)
    if constant:
        words.append(str(abs(constant)))
        return " + ".join(words[:-1]) + (" + " if constant > 0 else " - ") + words[-1]
    return " + ".join(words)


def add(*terms: str) -> str:
    """Return the C text of the sum of some expressions; zeros are omitted."""
    kept = [term for term in terms if term != "0"]
    return " + ".join(kept) or "0"


def identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> tuple[str, ...]:
    """Make distinct C identifiers from names: similar to `names`, not reserved, and not in `taken`."""
    used = set(taken) | RESERVED
    result = []
    for name in names:
        base = "".join(ch if ch.isalnum() and ch.isascii() else "_" for ch in name)
        base = base if base and not base[0].isdigit() else f"v{base}"
        candidate, number = base, 1
        while candidate in used:
            number += 1
            candidate = f"{base}_{number}"
        used.add(candidate)
        result.append(candidate)
    return tuple(result)


def ceil_div(a: int, b: int) -> int:
    """Return the quotient a / b rounded up, for positive b."""
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    """Return the smallest multiple of b that is at least a."""
    return ceil_div(a, b) * b
