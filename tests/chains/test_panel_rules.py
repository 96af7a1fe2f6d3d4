"""What rules take for a panel, against trying: which elements of the outputs change with which rows of the product's value."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym.chains.panel import panel_of
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Contract, Value
from gensor_gym.frontends.builder import Builder
from gensor_gym.operators.kinds.linear import batched_gemm, gemm
from tests.support.thorough import thorough_but

OTHERWISE = ("nothing is made", "reductions over different axes")
"""What refusals say of graphs whose rows may well stay apart: nothing is left to do, or no nest of rows has such reductions."""


class Drawn:
    """A product of small matrices and what nobody would do with it: reductions along any axes, maps, moves if asked."""

    def __init__(self, seed: int, moves: bool) -> None:
        self.rng, self.b = np.random.default_rng(seed), Builder()
        m, n, k = (int(self.rng.choice((2, 3, 4, 6))) for _ in range(3))
        if self.rng.integers(3) == 0:
            x = self.b.contract(batched_gemm(2, m, n, k), self.b.input("a", (2, m, k)), self.b.input("w", (2, k, n)))
        else:
            x = self.b.contract(gemm(m, n, k), self.b.input("a", (m, k)), self.b.input("w", (k, n)))
        kinds = [self.reduced, self.mapped, self.reduced] + ([self.moved] if moves else [])
        for _ in range(int(self.rng.integers(1, 4))):
            x = kinds[self.rng.integers(len(kinds))](x)
        self.graph: Dataflow = self.b.network("drawn", [x]).graph

    def reduced(self, x: str) -> str:
        """Less the sum or the largest along one axis, or along two."""
        shape = self.b.shapes[x]
        first = int(self.rng.choice((len(shape) - 1, len(shape) - 1, *range(len(shape)))))
        axes = sorted({first, *([int(self.rng.integers(len(shape)))] if self.rng.integers(4) == 0 else [])})
        found = self.b.reduce(x, str(self.rng.choice(("sum", "max"))), axes)
        return self.b.call("subtract", x, self.b.repeat(found, shape))

    def mapped(self, x: str) -> str:
        """With another array's elements, or alone."""
        shape = self.b.shapes[x]
        if self.rng.integers(2):
            return self.b.call("tanh", x)
        return self.b.call("multiply", x, self.b.input(f"y{self.rng.integers(1 << 30)}", shape))

    def moved(self, x: str) -> str:
        """In another shape, or axes changed about."""
        shape = self.b.shapes[x]
        if self.rng.integers(2):
            return self.b.reshape(x, (shape[-1], *shape[:-1]))
        return self.b.transpose(x, [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2])


def rows_apart(graph: Dataflow) -> bool:
    """Whether no element of an output is made of two rows of the product's value."""
    ((name, _),) = [one for one in graph.nodes if isinstance(one[1], Contract)]
    made, nodes = graph.values[name], tuple(one for one in graph.nodes if one[0] != name)
    if not nodes:
        return True
    read = {one for _, node in nodes for one in node.inputs}
    inputs = (*(value for value in graph.inputs if value.name in read), Value(name, made.shape))
    after = Dataflow("after", inputs, nodes, graph.returns)
    rng = np.random.default_rng(0)
    given = [rng.uniform(0.5, 1.5, value.shape) for value in after.inputs]
    seen = [np.zeros(value.shape, int) for value in graph.outputs]
    lines = given[-1].reshape(-1, made.shape[-1])
    before = [one.value for one in evaluate(after, given)]
    for row in range(len(lines)):
        changes = [np.zeros(value.shape, bool) for value in graph.outputs]
        kept = lines[row].copy()
        for draw in (2.0, -2.0, rng.uniform(-2, 2, kept.shape), rng.uniform(2, 3, kept.shape)):
            lines[row] = kept + draw
            for change, one, other in zip(changes, before, evaluate(after, given), strict=True):
                change |= one != other.value
        lines[row] = kept
        for count, change in zip(seen, changes, strict=True):
            count += change
    return all((count <= 1).all() for count in seen)


@pytest.mark.parametrize("start", thorough_but(range(0, 400, 40), 0))
def test_rules_and_trying_agree(start: int) -> None:
    """Without moves, what is refused for its rows mixes them, and what is taken does not."""
    taken = refused = 0
    for seed in range(start, start + 40):
        graph = Drawn(seed, moves=False).graph
        try:
            panel_of(graph)
            taken += 1
            assert rows_apart(graph), f"{seed}: {graph}"
        except ValueError as error:
            apart = rows_apart(graph)
            assert not apart or any(word in str(error) for word in OTHERWISE), f"{seed}: {error}: {graph}"
            refused += not apart
    assert taken > 3 and refused > 3


@pytest.mark.parametrize("start", thorough_but(range(1000, 1400, 40), 1000))
def test_what_is_moved_is_taken_only_where_rows_stay_apart(start: int) -> None:
    taken = mixed = 0
    for seed in range(start, start + 40):
        graph = Drawn(seed, moves=True).graph
        apart = rows_apart(graph)
        mixed += not apart
        try:
            panel_of(graph)
        except ValueError:
            continue
        taken += 1
        assert apart, f"{seed}: {graph}"
    assert taken and mixed > 3


def test_a_rule_that_lets_all_through_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: any access counts as one that goes row by row."""
    monkeypatch.setattr("gensor_gym.chains.panel.goes_row_by_row", lambda nest, access: True)
    with pytest.raises(AssertionError):
        for start in range(0, 400, 40):
            test_rules_and_trying_agree(start)
