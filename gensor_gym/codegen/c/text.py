"""Small tools for writing C: an indenting list of lines, linear index expressions, fresh names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

RESERVED = frozenset(
    "t call task index first last thread context block chunk lane out packed source count workspace runtime inputs "
    "output auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while "
    "y y0 y1 j0 j1 jn yn fill least most main kept not_done".split()
)
"""Identifiers that no axis or tensor may take: words of C and names that the generated text uses itself."""


class Lines:
    """Lines of C under construction."""

    def __init__(self) -> None:
        """Start empty, at the left margin."""
        self._lines: list[str] = []
        self._depth = 0

    def add(self, *lines: str) -> None:
        """Append lines at the current indentation; an empty one stays empty."""
        margin = "    " * self._depth
        self._lines.extend(margin + line if line else "" for line in lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """`head {`, the lines added meanwhile one step further in, `}`."""
        self.add(head + " {")
        self._depth += 1
        yield
        self._depth -= 1
        self.add("}")

    @contextmanager
    def blocks(self, heads: Iterable[str]) -> Iterator[None]:
        """Blocks nested in one another, outermost first."""
        heads = list(heads)
        for head in heads:
            self.add(head + " {")
            self._depth += 1
        yield
        for _ in heads:
            self._depth -= 1
            self.add("}")

    def __str__(self) -> str:
        """The text, with a newline at its end."""
        return "\n".join(self._lines) + "\n"


def linear(terms: Iterable[tuple[int, str]], constant: int = 0) -> str:
    """`m * 1024 + k + 5` for terms (1024, m), (1, k) and constant 5; terms with coefficient or name 0 are left out."""
    kept = [(c, name) for c, name in terms if c != 0 and name != "0"]
    words = [name if c == 1 else f"{f'({name})' if ' ' in name else name} * {c}" for c, name in kept]
    if not words:
        return str(constant)
    if constant:
        words.append(str(abs(constant)))
        return " + ".join(words[:-1]) + (" + " if constant > 0 else " - ") + words[-1]
    return " + ".join(words)


def add(*terms: str) -> str:
    """The sum of expressions, without the zeros."""
    kept = [term for term in terms if term != "0"]
    return " + ".join(kept) or "0"


def identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> tuple[str, ...]:
    """Distinct C identifiers close to `names`, none of them reserved or among `taken`."""
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
    """Quotient a / b rounded up, for positive b."""
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    """The smallest multiple of b that is at least a."""
    return ceil_div(a, b) * b
