"""Writing C text: an indenting writer, sums of terms, names of types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Scalar:
    """How a data type is spelled: type of an element and prefix of its vector types."""

    name: str
    vector: str


SCALARS = {
    "float32": Scalar("float", "float"),
    "float16": Scalar("unsigned short", "ushort"),
    "bfloat16": Scalar("unsigned short", "ushort"),
    "int8": Scalar("signed char", "char"),
    "int32": Scalar("int", "int"),
    "float8_e4m3fn": Scalar("unsigned char", "uchar"),
}
"""C types by data type; floating types of 8 and 16 bits are stored as their bits and computed as float."""
HALVES = ("float16", "bfloat16")
BITS = (*HALVES, "float8_e4m3fn")
"""Types that are kept as their bits; those of 8 bits are never written."""


def computed(dtype: str) -> str:
    """C type of a register that holds an element to compute with."""
    return "float" if dtype in BITS else SCALARS[dtype].name


def widened(dtype: str, value: str) -> str:
    """A stored element as C text of the type that is computed with."""
    return f"from_{dtype}({value})" if dtype in BITS else value


def narrowed(dtype: str, value: str) -> str:
    """A computed value as C text of the type that is stored."""
    return f"to_{dtype}({value})" if dtype in HALVES else value


@dataclass(frozen=True)
class Loop:
    """`for (int variable = 0; variable < stop; variable += step)`; unroll 0 means fully."""

    variable: str
    stop: str
    step: int = 1
    unroll: int = 0


@dataclass
class Writer:
    """Lines of C with their indentation."""

    lines: list[str] = field(default_factory=list)
    depth: int = 0

    def line(self, text: str = "") -> None:
        """Add one line; empty for a blank one. Preprocessor lines keep the indentation."""
        self.lines.append("  " * self.depth + text if text else "")

    def note(self, text: str) -> None:
        """A comment."""
        self.line(f"// {text}")

    @contextmanager
    def block(self, head: str, tail: str = "") -> Iterator[None]:
        """`head {` .. `}tail`; a bare scope where there is no head."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}" + tail)

    @contextmanager
    def nest(self, loops: Iterable[Loop]) -> Iterator[None]:
        """Loops one inside the other."""
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
        """`if (all conditions) { .. }`, or nothing around the body when there are none."""
        with ExitStack() as stack:
            if conditions:
                stack.enter_context(self.block(f"if ({' && '.join(conditions)})"))
            yield

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines) + "\n"


def total(terms: Iterable[tuple[int, str]], constant: int = 0) -> str:
    """The sum of coefficient * expression and a constant, without zeros and ones."""
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
    """The expression, in parentheses unless it is a product, a name or a call."""
    return f"({expression})" if re.search(r" [-+%] ", expression) else expression


def remainder(expression: str, divisor: int, size: int) -> str:
    """`expression / divisor % size` without the steps that do nothing; `size` 0 leaves the quotient as it is."""
    text = expression if divisor == 1 else f"{expression} / {divisor}"
    return text if size == 0 else f"{text} % {size}"


def subscript(name: str, indices: Iterable[str]) -> str:
    """`name[i][j]`; the bare name where there are no indices."""
    return name + "".join(f"[{index}]" for index in indices)


def used_constants(text: str, constants: dict[str, tuple[int, str]]) -> list[str]:
    """Declarations of the named constants that the text uses, each with its comment."""
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    return [f"constexpr int {name} = {value};  // {why}" for name, (value, why) in constants.items() if name in words]
