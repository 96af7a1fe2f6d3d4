"""Chains of products that nobody wrote: heads beside one another or not, any order of axes, anything of rows between."""

from __future__ import annotations

import numpy as np

from gensor_gym.chains.chain import chain_of
from gensor_gym.chains.graph import ChainGraph
from gensor_gym.codegen.chains.generate import ChainProgram, generate_chain
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.operators.kinds.linear import batched_gemm, gemm
from tests.support.gir_cases import machine

HALF_OF = {5: "bfloat16", 6: "float16"}
"""Seed modulo 8 -> 16-bit type of the chain's matrices; others are float32."""
EXTENTS = (1, 2, 3, 5, 7, 16, 17, 31, 33, 48, 65)


class ChainDraw:
    """One random chain: `graph`."""

    extents: tuple[int, ...] = EXTENTS

    def __init__(self, seed: int, half: str | None = None) -> None:
        self.rng, self.b = np.random.default_rng(seed), Builder()
        self.b.half = HALF_OF.get(seed % 8, "") if half is None else half
        self.outer = tuple(int(self.rng.choice((1, 2, 3))) for _ in range(self.rng.integers(0, 3)))
        m, k, n, d = (int(self.rng.choice(self.extents)) for _ in range(4))
        scores = self._product(self._operand("q", m, k), self._operand("k", k, n), m, n, k)
        weights = self._between(self._split(scores, m, n), m, n)
        made = self._product(self._joined(weights, m, n), self._operand("v", n, d), m, d, n)
        self.graph: Dataflow = self.b.network("chain", [self._written(made, m, d)]).graph

    def _operand(self, name: str, rows: int, columns: int) -> str:
        """A matrix for each element of the batch, of an input whose axes are in any order."""
        shape = (*self.outer, rows, columns)
        order = self.rng.permutation(len(shape)) if self.rng.integers(3) else np.arange(len(shape))
        given = self.b.input(name, [shape[axis] for axis in order], self.b.half or "float32")
        turned = self.b.transpose(given, np.argsort(order).tolist())
        return self._joined(turned, rows, columns)

    def _joined(self, name: str, rows: int, columns: int) -> str:
        return self.b.reshape(name, (int(np.prod(self.outer)), rows, columns) if self.outer else (rows, columns))

    def _split(self, name: str, rows: int, columns: int) -> str:
        return self.b.reshape(name, (*self.outer, rows, columns))

    def _product(self, one: str, other: str, m: int, n: int, k: int) -> str:
        op = batched_gemm(int(np.prod(self.outer)), m, n, k) if self.outer else gemm(m, n, k)
        return self.b.contract(op, one, other)

    def _written(self, name: str, rows: int, columns: int) -> str:
        """The output in any order of axes but its columns."""
        split, last = self._split(name, rows, columns), len(self.outer) + 1
        return self.b.transpose(split, [*self.rng.permutation(last).tolist(), last]) if self.rng.integers(3) else split

    def _between(self, x: str, rows: int, columns: int) -> str:
        """Some steps of rows: a factor, a mask, a softmax, a norm; or none."""
        for _ in range(self.rng.integers(0, 4)):
            match self.rng.integers(5):
                case 0:
                    x = self.b.call("maximum", of("multiply", x, 0.25), -0.5)
                case 1:
                    shape = [int(self.rng.choice((1, extent))) for extent in self.b.shapes[x]]
                    x = self.b.call("add", x, self.b.input("mask", shape))
                case 2:
                    top = self.b.repeat(self.b.reduce(x, "max", [-1]), self.b.shapes[x])
                    powers = self.b.call("exp", of("subtract", x, top))
                    x = self.b.call("divide", powers, self.b.repeat(self.b.reduce(powers, "sum", [-1]), self.b.shapes[x]))
                case 3:
                    squares = self.b.mean(self.b.call("multiply", x, x), [-1])
                    factor = self.b.call("rsqrt", of("add", squares, 0.5))
                    x = self.b.call("multiply", x, self.b.repeat(factor, self.b.shapes[x]))
                case _:
                    x = self.b.call("tanh", x)
        return x


def chain_kernels(seeds: range) -> list[Kernel]:
    """Of each random chain the C kernel of a random legal schedule, for one of three widths of vectors.

    Few have something between their products that no row nest says, as where a row has one column.
    """
    found = []
    for seed in seeds:
        graph, rng = ChainDraw(seed).graph, np.random.default_rng(seed)
        try:
            space = ChainGraph(graph, machine(int(rng.choice((16, 16, 8, 4)))))
        except ValueError as error:
            assert "between the products" in str(error) or str(error).startswith("middle"), error
            continue
        found.append(generate_chain(ChainProgram(chain_of(graph), space.random_schedule(rng, 60), space.hardware)))
    return found
