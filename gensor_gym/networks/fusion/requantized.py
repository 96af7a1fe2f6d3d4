"""Scales and zero points after int8 products, arranged so that the product's kernel ends with int8 numbers.

After a product come a factor and an addend for each channel, perhaps a dequantised tensor that is added, a function, and the next
quantisation: q = clip(round(f(m a + b + (r - z) s) / t) + y). If f is relu or nothing, the scale t goes into m and b. A tensor of
int8 is added in its own units: f(m / s a + b / s - z + r) s / t. The numbers that both forms round differ from torch's by a few
units of the last place, so a result near a tie may differ by one step. Factors are positive, so relu may come after the factors;
relu is left out where clipping has the same effect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gensor_gym.dataflow.channels import channel_vector
from gensor_gym.dataflow.expressions import (
    INT8,
    LEAST,
    MOST,
    Call,
    Constant,
    Expression,
    Operand,
    dequantized,
    operands,
    quantize,
    quantized,
    renamed,
)  # fmt: skip
from gensor_gym.dataflow.nodes import Broadcast, Contract, Map, Node, Reduce, Reshape, Value
from gensor_gym.dataflow.postops import function_of
from gensor_gym.networks.network import Network, in_order, pruned
from gensor_gym.operators.types import Operator


@dataclass
class _Chain:
    """The operations on a product of int8 up to the next quantisation."""

    factor: np.ndarray
    """Factor of each channel, float64 [channels]."""
    addend: np.ndarray
    maps: list[str]
    """Names of the nodes that the chain replaces."""
    residual: str = ""
    """Name of a value of the product's size that is added."""
    numbers: tuple[str, float, float] | None = None
    """(int8 numbers, zero point, scale) of the residual, if it is dequantised."""
    function: Expression | None = None
    """Function of the operand y."""
    stage: str = ""
    """The function as a stage of an epilogue."""


def requantized(network: Network) -> Network:
    """Return the network in which a product's kernel can compute the chain of maps from the product to a quantisation."""
    graph, made, arrays, kinds = network.graph, dict(network.nodes), dict(network.constants), set[tuple[str, str]]()
    for name, node in graph.nodes:
        if not isinstance(node, Contract) or node.operator.dtype != INT8 or (found := _chain(network, name, node)) is None:
            continue
        chain, last, (inverse, zero) = found
        for passed in chain.maps:
            del made[passed]
        if node.operator.epilogue:  # its addends are part of the chain's
            made[name] = Contract(node.operator.renamed(epilogue=()), node.sources[:-1])
        nodes, vectors = _Arranged(network, name, node, chain).nodes(inverse, zero)
        *others, (flat, end) = nodes.items()
        made.update(others)
        is_same = node.operator.output.shape == graph.values[last].shape
        made.update({last: end} if is_same else {flat: end, last: Reshape(flat, graph.values[last].shape)})
        kinds.add((last if is_same else flat, INT8))
        arrays.update(vectors)
    fresh = [Value(name, array.shape, "float32", constant=True) for name, array in arrays.items() if name not in graph.values]
    return _read_apart(pruned(network, (*graph.inputs, *fresh), in_order(made), arrays, kinds) if kinds else network)


def _read_apart(network: Network) -> Network:
    """Return the network in which each map or reduction dequantises its int8 operands, so that kernels exchange int8 values."""
    nodes, origins = list[tuple[str, Node]](), dict(network.origins)
    for name, node in network.graph.nodes:
        for one in node.inputs if isinstance(node, Map | Reduce) else ():
            maker = network.nodes.get(one)
            found = dequantized(maker.expression) if isinstance(maker, Map) else None
            if found is not None and network.graph.values[found[0]].dtype == INT8:
                own = f"{one}_for_{name}"
                nodes.append((own, network.nodes[one]))
                origins[own] = origins.get(name, "")
                node = node.reading({other: own if other == one else other for other in node.inputs})
        nodes.append((name, node))
    if len(nodes) == len(network.graph.nodes):
        return network
    made = pruned(network, network.graph.inputs, nodes, network.constants)
    return replace(made, origins={name: origins[name] for name, _ in made.graph.nodes if name in origins})


def _chain(network: Network, product: str, node: Contract) -> tuple[_Chain, str, tuple[float, float]] | None:
    """Return (chain after a product, name of its quantised value, (inverse of scale, zero)); None without a quantisation."""
    graph, op, last = network.graph, node.operator, product
    channels, sums = op.output.shape[op.channel_dimension], None
    if op.epilogue:
        sums = network.constants.get(node.sources[-1])
        if sums is None or [stage.name for stage in op.epilogue] != ["bias"]:
            return None
    chain = _Chain(np.ones(channels), np.zeros(channels) if sums is None else sums.astype(np.float64), [])
    while last not in graph.returns and len(graph.readers[last]) == 1:
        (reader,) = graph.readers[last]
        read = network.nodes[reader]
        chain.maps.append(reader)
        if isinstance(read, Map) and graph.values[reader].dtype == INT8:
            end = _end(read.expression, last)
            return None if end is None else (chain, reader, end)
        if not isinstance(read, Reshape) and not (isinstance(read, Map) and _taken(network, chain, read.expression, last, op)):
            return None
        last = reader
    return None


def _end(expression: Expression, last: str) -> tuple[float, float] | None:
    """Return (inverse of the scale, zero point) of a quantisation of `last` to all of int8; None for other expressions.

    Kernels add zero points in 16 bits, so a zero point that is no int8 number is left to a map.
    """
    match quantized(expression):
        case (Call("multiply", (Operand(name), Constant(inverse))), Constant(zero), least, most):
            fits = (least, most) == (LEAST, MOST) and LEAST <= zero <= MOST and inverse > 0
            return (inverse, zero) if name == last and fits else None
    return None


def _taken(network: Network, chain: _Chain, expression: Expression, last: str, op: Operator) -> bool:
    """Add a map's effect on the value `last` to a chain; False if the chain has no place for it."""
    names, graph = operands(expression), network.graph
    if chain.function is not None:
        return False
    if names == [last]:
        if (affine := dequantized(expression)) is not None and not chain.residual:
            chain.factor, chain.addend = chain.factor * affine[2], (chain.addend - affine[1]) * affine[2]
            return True
        chain.function, chain.stage = renamed(expression, {last: "y"}), function_of(expression) or ""
        return bool(chain.stage)
    if len(names) != 2 or chain.residual or not isinstance(expression, Call) or expression.function not in ("add", "multiply"):
        return False
    other, is_sum = names[1 - names.index(last)], expression.function == "add"
    if set(expression.arguments) != {Operand(last), Operand(other)}:
        return False
    vector = channel_vector(graph, other, op) or (other if len(op.output.shape) == 1 else None)
    if vector is not None and vector in network.constants:
        numbers = network.constants[vector].astype(np.float64).reshape(-1)
        chain.factor = chain.factor if is_sum else chain.factor * numbers
        chain.addend = chain.addend + numbers if is_sum else chain.addend * numbers
        return True
    if not is_sum or graph.is_repeated(other):
        return False
    chain.residual = other
    maker = network.nodes.get(graph.behind(other, (Reshape,))[-1])
    given = dequantized(maker.expression) if isinstance(maker, Map) else None
    chain.numbers = given if given and graph.values[given[0]].dtype == INT8 and given[2] > 0 else None
    return True


class _Arranged:
    """The nodes that compute a chain after a product, in an order of stages of its kernel."""

    def __init__(self, network: Network, product: str, node: Contract, chain: _Chain) -> None:
        """Begin with the product's node."""
        self.network, self.product, self.op, self.chain, self.last = network, product, node.operator, chain, product
        self.made: dict[str, Node] = {}
        self.vectors: dict[str, np.ndarray] = {}

    def nodes(self, inverse: float, zero: float) -> tuple[dict[str, Node], dict[str, np.ndarray]]:
        """Return (nodes, the quantised value last; constant vectors that they read)."""
        chain, has_units = self.chain, self.chain.stage in ("", "relu")
        numbers = chain.numbers if has_units else None
        _, below, step = numbers or ("", 0.0, 1.0)
        units = step if chain.residual or not has_units else 1.0 / inverse
        self._with_vector("factor", chain.factor / units, "multiply")
        if (addend := chain.addend / units - below).any():
            self._with_vector("addend", addend, "add")
        if chain.residual:
            given = numbers[0] if numbers else chain.residual
            self._add("sum", Call("add", (Operand(self.last), Operand(self._of_shape(given)))))
        if chain.function is not None and not (chain.stage == "relu" and zero == LEAST):
            self._add("function", renamed(chain.function, {"y": self.last}))
        if chain.residual or not has_units:
            self._with_vector("step", np.float64(units * inverse), "multiply")
        self._add("quantized", quantize(Operand(self.last), self._wide("zero", np.float64(zero))))
        return self.made, self.vectors

    def _add(self, name: str, expression: Expression) -> None:
        self.last = f"{name}_after_{self.product}"
        self.made[self.last] = Map(expression)

    def _wide(self, name: str, numbers: np.ndarray | float) -> Operand:
        op, own = self.op, f"{name}s_after_{self.product}"
        along = [-1] + [1] * (len(op.output.shape) - 1 - op.channel_dimension)
        self.vectors[own] = np.broadcast_to(numbers, self.chain.factor.shape).astype(np.float32).reshape(along)
        self.made[f"{own}_wide"] = Broadcast(own, op.output.shape)
        return Operand(f"{own}_wide")

    def _with_vector(self, name: str, numbers: np.ndarray | float, function: str) -> None:
        wide = self._wide(name, numbers)
        self._add(name, Call(function, (Operand(self.last), wide)))

    def _of_shape(self, name: str) -> str:
        if self.network.graph.values[name].shape == self.op.output.shape:
            return name
        self.made[f"{name}_for_{self.product}"] = Reshape(name, self.op.output.shape)
        return f"{name}_for_{self.product}"
