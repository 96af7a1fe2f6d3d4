"""Writing C text: an indenting writer, sums of terms, and names of types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Scalar:
    """C names of a data type: the type of an element and the prefix of its vector types."""

    name: str
    vector: str


SCALARS = {
    "float32": Scalar("float", "float"),
    "float16": Scalar("unsigned short", "ushort"),
    "bfloat16": Scalar("unsigned short", "ushort"),
    "int8": Scalar("signed char", "char"),
    "int32": Scalar("int", "int"),
    "int64": Scalar("long long", "longlong"),
    "bool": Scalar("unsigned char", "uchar"),
    "float8_e4m3fn": Scalar("unsigned char", "uchar"),
}
"""C types by data type. Floating types of 8 and 16 bits are stored as their bits and converted to float for computation."""
HALVES = ("float16", "bfloat16")
BITS = (*HALVES, "float8_e4m3fn")
"""Floating types that are stored as their bits. The 8-bit type occurs in inputs only."""


def computed(dtype: str) -> str:
    """Return the C type of a register that holds an element for computation."""
    return "float" if dtype in BITS else SCALARS[dtype].name


def widened(dtype: str, value: str) -> str:
    """Return the C text that converts a stored element to the type `computed(dtype)`."""
    return f"from_{dtype}({value})" if dtype in BITS else value


def narrowed(dtype: str, value: str) -> str:
    """Return the C text that converts a computed value to the type in which it is stored."""
    return f"to_{dtype}({value})" if dtype in HALVES else value


@dataclass(frozen=True)
class Loop:
    """The C loop `for (int variable = 0; variable < stop; variable += step)`. An `unroll` of 0 means fully unrolled."""

    variable: str
    stop: str
    step: int = 1
    unroll: int = 0


@dataclass
class Writer:
    """Lines of C text, indented by the depth of blocks."""

    lines: list[str] = field(default_factory=list)
    depth: int = 0

    def line(self, text: str = "") -> None:
        """Add an indented line, or a blank line for empty text. Preprocessor directives are indented too."""
        self.lines.append("  " * self.depth + text if text else "")

    def note(self, text: str) -> None:
        """Add a comment line."""
        self.line(f"// {text}")

    @contextmanager
    def block(self, head: str, tail: str = "") -> Iterator[None]:
        """Write `head {` before and `}tail` after the lines that are written within the `with` block.

        Without a head, the block is a bare scope.
        """
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}" + tail)

    @contextmanager
    def nest(self, loops: Iterable[Loop]) -> Iterator[None]:
        """Write nested unrolled loops around the lines that are written within the `with` block."""
        with ExitStack() as stack:
            for loop in loops:
                self.line("#pragma unroll" + (f" {loop.unroll}" if loop.unroll else ""))
                advance = f"++{loop.variable}" if loop.step == 1 else f"{loop.variable} += {loop.step}"
                stack.enter_context(
                    self.block(f"for (int {loop.variable} = 0; {loop.variable} < {loop.stop}; {advance})")
                )
            yield

    @contextmanager
    def guarded(self, conditions: list[str]) -> Iterator[None]:
        """Write `if (all conditions) { .. }` around the lines of the `with` block; without conditions, write only these lines."""
        with ExitStack() as stack:
            if conditions:
                stack.enter_context(self.block(f"if ({' && '.join(conditions)})"))
            yield

    @property
    def text(self) -> str:
        """All lines as one string."""
        return "\n".join(self.lines) + "\n"


def total(terms: Iterable[tuple[int, str]], constant: int = 0) -> str:
    """Return the C text of the sum of (coefficient, expression) products and a constant, without terms of 0 and factors of 1."""
    parts = []
    for coefficient, expression in terms:
        if coefficient == 0 or expression == "0":
            continue
        if coefficient == 1:
            parts.append(expression)
        else:
            parts.append(f"{_factor(expression)} * {coefficient}")
    text = " + ".join(parts)
    if constant == 0:
        return text or "0"
    return f"{text} {'+' if constant > 0 else '-'} {abs(constant)}" if text else str(constant)


def _factor(expression: str) -> str:
    return f"({expression})" if re.search(r" [-+%] ", expression) else expression


def remainder(expression: str, divisor: int, size: int) -> str:
    """Return the C text of `expression / divisor % size`.

    A divisor of 1 omits the division, and a size of 0 omits the remainder.
    """
    text = expression if divisor == 1 else f"{expression} / {divisor}"
    return text if size == 0 else f"{text} % {size}"


def subscript(name: str, indices: Iterable[str]) -> str:
    """Return the C text `name[i][j]`, or the bare name without indices."""
    return name + "".join(f"[{index}]" for index in indices)


def used_constants(text: str, constants: dict[str, tuple[int, str]]) -> list[str]:
    """Return the C declarations of those constants that the text uses, each with its meaning as a comment."""
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    return [f"constexpr int {name} = {value};  // {why}" for name, (value, why) in constants.items() if name in words]
