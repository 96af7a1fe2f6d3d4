"""Random networks by name, such as `normed(seed=7)`: a family, and a seed that is hashed so that seeds 7 and 8 differ entirely.

We chose sizes like those of the suite's small networks: neither products nor other nodes alone take most of the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.text import parse
from gensor_gym.networks.network import Network
from gensor_gym.operators.types import ARRAY_DTYPE
from gensor_gym.registry import near

_ROWS, _WIDTHS = range(8, 385, 4), range(64, 641, 16)
_ACTIVATIONS = (
    ("maximum({x}, 0.0)",),
    ("0.5 * {x} * (1.0 + erf({x} * 0.7071067811865476))",),
    ("exp(-{x})", "{x} / (1.0 + {0})"),
    ("{x} * {x}", "{0} * {x} * 0.044715 + {x}", "tanh(0.7978845608028654 * {1})", "0.5 * {x} * (1.0 + {2})"),
)
"""Nodes of an activation of {x}; {0}, {1}, .. are the nodes before: ReLU, GELU, SiLU, and GPT-2's GELU."""


class _Writer:
    """The text of a network's graph, written line by line."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.inputs, self.lines = rng, list[str](), list[str]()
        self.rows = int(rng.choice(_ROWS))

    def given(self, *shape: int, constant: bool = False) -> str:
        """Write a new input or constant, and return its name."""
        kind = f"float32{list(shape)}"
        self.inputs.append(f"x{len(self.inputs)}: " + (f"constant({kind})" if constant else kind))
        return f"x{len(self.inputs) - 1}"

    def made(self, text: str) -> str:
        """Write a new node, and return its name."""
        self.lines.append(f"    v{len(self.lines)} = {text}")
        return f"v{len(self.lines) - 1}"

    def width(self) -> int:
        """Draw a number of columns."""
        return int(self.rng.choice(_WIDTHS))

    def product(self, x: str, inner: int, columns: int, bias: bool = True) -> str:
        """Write a linear layer of x [rows, inner], and return its name."""
        weights = self.given(inner, columns, constant=True)
        y = self.made(f"contract({x}, {weights}, operator='gemm(m={self.rows}, n={columns}, k={inner})')")
        return self.made(f"{y} + {self.given(columns, constant=True)}") if bias else y

    def activation(self, x: str) -> str:
        """Write a random activation as one to four nodes, and return its name."""
        found: list[str] = []
        for text in _ACTIVATIONS[self.rng.integers(len(_ACTIVATIONS))]:
            found.append(self.made(text.format(*found, x=x)))
        return found[-1]

    def norm(self, x: str, width: int, centred: bool) -> str:
        """Write a layer normalisation of every row, or unless `centred` an RMS normalisation, and return its name."""
        if centred:
            x = self.made(f"{x} - {self.made(f'reduce_sum({x}, axes=[1])')} * {1.0 / width!r}")
        total = self.made(f"reduce_sum({self.made(f'{x} * {x}')}, axes=[1])")
        scale = self.made(f"rsqrt({total} * {1.0 / width!r} + 1e-05)")
        y = self.made(f"{x} * {scale}")
        y = self.made(f"{y} * {self.given(width, constant=True)}")
        return self.made(f"{y} + {self.given(width, constant=True)}") if centred else y

    def graph(self, name: str, result: str) -> Dataflow:
        """Return the graph `name` with the output `result`."""
        return parse("\n".join([f"def {name}({', '.join(self.inputs)}):", *self.lines, f"    return {result}"]))


def _layered(to: _Writer) -> str:
    """Write linear layers with activations, some with the layer's input added, and return the result's name."""
    width = to.width()
    x = to.given(to.rows, width)
    for _ in range(to.rng.integers(2, 5)):
        columns = width if to.rng.random() < 0.4 else to.width()
        y = to.activation(to.product(x, width, columns))
        x = to.made(f"{y} + {x}") if columns == width and to.rng.random() < 0.7 else y
        width = columns
    return x


def _normed(to: _Writer) -> str:
    """Write pairs of linear layers with residuals, normalised before or after, and return the result's name."""
    width = to.width()
    x = to.given(to.rows, width)
    for _ in range(to.rng.integers(1, 4)):
        inner, first = to.width(), to.rng.random() < 0.5
        y = to.norm(x, width, True) if first else x
        y = to.product(to.activation(to.product(y, width, inner)), inner, width)
        y = to.made(f"{y} + {x}")
        x = y if first else to.norm(y, width, True)
    return x


def _attending(to: _Writer) -> str:
    """Write self-attention of one head, with or without a mask, and a linear layer; return the result's name."""
    width, size = to.width(), int(to.rng.choice((32, 64, 96)))
    x = to.given(to.rows, width)
    q, k, v = (to.product(x, width, size, bias=bool(to.rng.random() < 0.5)) for _ in range(3))
    turned = to.made(f"transpose({k}, order=[1, 0])")
    scores = to.made(f"contract({q}, {turned}, operator='gemm(m={to.rows}, n={to.rows}, k={size})')")
    scores = to.made(f"{scores} * {size**-0.5!r}")
    if to.rng.random() < 0.5:
        scores = to.made(f"{scores} + {to.given(1, to.rows)}")
    e = to.made(f"exp({scores} - {to.made(f'reduce_max({scores}, axes=[1])')})")
    weights = to.made(f"{e} / {to.made(f'reduce_sum({e}, axes=[1])')}")
    y = to.made(f"contract({weights}, {v}, operator='gemm(m={to.rows}, n={size}, k={to.rows})')")
    y = to.made(f"{to.product(y, size, width)} + {x}")
    return to.norm(y, width, True) if to.rng.random() < 0.5 else y


def _branched(to: _Writer) -> str:
    """Write a sum of branches (maps and reductions of one value) between two linear layers; return the result's name."""
    width = to.width()
    x = to.product(to.given(to.rows, width), width, width)
    total = x
    for _ in range(to.rng.integers(2, 5)):
        y = to.activation(x)
        if to.rng.random() < 0.4:
            y = to.made(f"{y} - {to.made(f'reduce_max({y}, axes=[1])')}")
        total = to.made(f"{total} + {y}")
    return to.product(total, width, to.width())


def _gated(to: _Writer) -> str:
    """Write RMS norms and gated linear units, a family of the part `unseen` only; return the result's name."""
    width = to.width()
    x = to.given(to.rows, width)
    for _ in range(to.rng.integers(1, 3)):
        y, inner = to.norm(x, width, False), to.width()
        gate = to.activation(to.product(y, width, inner, bias=False))
        y = to.made(f"{gate} * {to.product(y, width, inner, bias=False)}")
        x = to.made(f"{to.product(y, inner, width, bias=False)} + {x}")
    return x


FAMILIES: dict[str, Callable[[_Writer], str]] = {
    "layered": _layered, "normed": _normed, "attending": _attending, "branched": _branched, "gated": _gated,
}  # fmt: skip
UNSEEN = "gated"
PARTS = {"train": range(256), "validation": range(256, 288), "test": range(288, 320), "unseen": range(32)}
"""Part -> seeds of its networks: of all families but `UNSEEN`, or of it alone."""


def names_of(part: str) -> list[str]:
    """Return the names of the networks of a part; ValueError for an unknown part."""
    if part not in PARTS:
        raise ValueError(f"part {part!r}: expected one of {', '.join(PARTS)}{near(part, PARTS)}")
    known = [UNSEEN] if part == "unseen" else [family for family in FAMILIES if family != UNSEEN]
    return [f"{known[seed % len(known)]}(seed={seed})" for seed in PARTS[part]]


def drawn(name: str) -> Dataflow | None:
    """Return the graph with a name such as `normed(seed=7)`; None for other texts."""
    found = re.fullmatch(r"\s*(\w+)\(seed=(\d{1,9})\)\s*", name)
    if found is None or found[1] not in FAMILIES:
        return None
    place = list(FAMILIES).index(found[1])
    to = _Writer(np.random.default_rng(np.random.SeedSequence([int(found[2]), place])))
    return to.graph(f"{found[1]}_{found[2]}", FAMILIES[found[1]](to))


def network_of(graph: Dataflow, seed: int | None = None) -> Network:
    """Return the network of a graph. Constants are 0 or, with a seed, normal numbers over the root of their first extent."""
    rng = None if seed is None else np.random.default_rng(seed)
    constants = {}
    for value in graph.inputs:
        if value.constant:
            kind = ARRAY_DTYPE[value.dtype]
            numbers = np.zeros(()) if rng is None else rng.standard_normal(value.shape) / np.sqrt(value.shape[0])
            constants[value.name] = np.broadcast_to(numbers.astype(kind), value.shape)
    return Network(graph, constants)
