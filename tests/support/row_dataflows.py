"""Random dataflow graphs that are rows: maps and reductions along the last axis, with several passes and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.text import parse

_ONE = (
    "tanh({0})", "exp(0.25 * {0})", "erf({0})", "-{0}", "absolute({0})", "sqrt(absolute({0}) + 0.5)", "rsqrt({0} * {0} + 0.25)",
)  # fmt: skip
_TWO = (
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "maximum({0}, {1})", "minimum({0}, 0.5 * {1})", "{0} / (1.5 + absolute({1}))",
    "where({0} < {1}, {0}, 0.25)",
)  # fmt: skip
_EDGES = {
    "plain": ("float32[{m}, {n}]", ""),
    "turned": ("float32[{n}, {m}]", "transpose({0}, order=[1, 0])"),
    "part": ("float32[{m}, {more}]", "slice({0}, axis=1, start=1, stop={more})"),
    "flat": ("float32[{size}]", "reshape({0}, to=[{m}, {n}])"),
    "parameter": ("constant(float32[{n}])", "broadcast({0}, to=[{m}, {n}])"),
    "of_rows": ("float32[{m}, 1]", "broadcast({0}, to=[{m}, {n}])"),
}
"""How an input comes in: its type, and the move that makes m rows of n columns of it."""


@dataclass
class _Writer:
    """A graph that grows line by line."""

    rng: np.random.Generator
    wide: list[str] = field(default_factory=list)
    narrow: list[str] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    def take(self, m: int, n: int) -> None:
        """One input more."""
        kind = str(self.rng.choice(list(_EDGES))) if self.inputs else "plain"
        name, (shaped, move) = f"x{len(self.inputs)}", _EDGES[kind]
        sizes = {"m": m, "n": n, "more": n + 1, "size": m * n}
        self.inputs[name] = shaped.format(**sizes)
        if move:
            self.lines[f"{kind}{len(self.inputs)}"] = move.format(name, **sizes)
            name = f"{kind}{len(self.inputs)}"
        self.wide.append(name)

    def reduce(self, name: str) -> None:
        """A number a row."""
        source = str(self.rng.choice(self.wide[-3:]))
        self.lines[name] = f"reduce_{self.rng.choice(['sum', 'max'])}({source}, axes=[1])"
        self.read.add(source)
        self.narrow.append(name)

    def map(self, name: str) -> None:
        """A map of values of any kind, often of a wide one and the last number of the row, or of numbers alone."""
        pool = self.narrow if self.narrow and self.rng.integers(5) == 0 else self.wide
        last = self.narrow[-1:] if self.rng.integers(2) else []
        template = str(self.rng.choice(_ONE + _TWO))
        chosen = [str(self.rng.choice(pool)), *(last or [str(self.rng.choice(pool))])][: 2 if template in _TWO else 1]
        self.lines[name] = template.format(*chosen)
        self.read |= set(chosen)
        (self.wide if set(chosen) & set(self.wide) else self.narrow).append(name)

    def graph(self, name: str) -> Dataflow:
        """The graph: what nothing reads is an output, now and then more; an input that nothing reads is left out."""
        made = [one for one in self.lines if one.startswith("v")]
        returns = [one for one in made if one not in self.read or self.rng.integers(6) == 0]
        lines = {one: text for one, text in self.lines.items() if one in made or one in self.read}
        used = {value for value in self.inputs if value in self.read or any(f"({value}," in text for text in lines.values())}
        given = ", ".join(f"{one}: {shaped}" for one, shaped in self.inputs.items() if one in used)
        body = "\n".join(f"    {one} = {text}" for one, text in lines.items())
        return parse(f"def {name}({given}):\n{body}\n    return {', '.join(returns)}\n")


def random_rows_dataflow(seed: int, most: int = 14) -> Dataflow:
    """A graph of up to so many lines over rows of small awkward extents; about three of four have loops that are canonical."""
    rng = np.random.default_rng(seed)
    writer, m, n = _Writer(rng), int(rng.choice([1, 2, 3, 5, 7])), int(rng.choice([1, 2, 5, 16, 19, 33]))
    for _ in range(int(rng.integers(1, 4))):
        writer.take(m, n)
    if rng.integers(4):
        writer.lines["vx"] = " + ".join(writer.wide)
        writer.read |= set(writer.wide)
        writer.wide.append("vx")
    for number in range(int(rng.integers(2, most))):
        (writer.reduce if rng.integers(3) == 0 or number == 0 else writer.map)(f"v{number}")
    return writer.graph(f"rows_{seed}")
