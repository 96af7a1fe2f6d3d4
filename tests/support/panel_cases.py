"""Products with rows after them that nobody wrote: post-ops or none, a norm or a softmax, one output or several."""

from __future__ import annotations

import dataclasses

import numpy as np

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.operators.kinds.linear import batched_gemm, gemm

EXTENTS = (2, 3, 5, 7, 16, 17, 31, 33, 48, 65)


class PanelDraw:
    """One random panel: `graph`, whose weights are constant in half of the cases."""

    def __init__(self, seed: int) -> None:
        self.rng, self.b = np.random.default_rng(seed), Builder()
        batch = int(self.rng.choice((0, 0, 2, 3)))
        m, k, n = (int(self.rng.choice(EXTENTS)) for _ in range(3))
        outer = (batch,) if batch else ()
        op = batched_gemm(batch, m, n, k) if batch else gemm(m, n, k)
        x = self.b.contract(op, self.b.input("a", (*outer, m, k)), self.b.input("w", (*outer, k, n)))
        x = self.b.reshape(x, (*outer, 1, m, n)) if self.rng.integers(2) else x
        for _ in range(self.rng.integers(0, 3)):
            x = self._post_op(x)
        returns = [x] if self.rng.integers(3) == 0 else []
        made = self._rows(x)
        returns += [made, self._rows(made)] if self.rng.integers(3) == 0 else [made]
        if self.rng.integers(4) == 0:
            returns.append(self.b.reduce(made, "max", [-1]))
        graph = self.b.network("panel", returns).graph
        constant = bool(self.rng.integers(2)) and not batch
        inputs = tuple(value.as_constant() if constant and value.name == "w" else value for value in graph.inputs)
        self.graph: Dataflow = dataclasses.replace(graph, inputs=inputs)

    def _post_op(self, x: str) -> str:
        shape = self.b.shapes[x]
        match self.rng.integers(3):
            case 0:
                return self.b.call("add", x, self.b.repeat(self.b.input("bias", (shape[-1],)), shape))
            case 1:
                return self.b.call("add", self.b.input("residual", shape), x)
            case _:
                return self.b.call("maximum", x, 0.0)

    def _rows(self, x: str) -> str:
        """A softmax, a layer norm, an RMS norm, or a map with a number of each row."""
        shape = self.b.shapes[x]
        match self.rng.integers(4):
            case 0:
                powers = self.b.call("exp", of("subtract", x, self.b.repeat(self.b.reduce(x, "max", [-1]), shape)))
                return self.b.call("divide", powers, self.b.repeat(self.b.reduce(powers, "sum", [-1]), shape))
            case 1:
                apart = self.b.call("subtract", x, self.b.repeat(self.b.mean(x, [-1]), shape))
                factor = self.b.call("rsqrt", of("add", self.b.mean(self.b.call("multiply", apart, apart), [-1]), 0.5))
                return self.b.call("multiply", apart, self.b.repeat(factor, shape))
            case 2:
                factor = self.b.call("rsqrt", of("add", self.b.mean(self.b.call("multiply", x, x), [-1]), 0.5))
                scaled = self.b.call("multiply", x, self.b.repeat(factor, shape))
                return self.b.call("multiply", scaled, self.b.repeat(self.b.input("scale", (shape[-1],)), shape))
            case _:
                row = self.b.input("row", (*shape[:-1], 1))
                return self.b.call("tanh", of("multiply", x, self.b.repeat(row, shape)))
