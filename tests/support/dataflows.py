"""Random dataflow graphs, and a second interpreter of them: in float32, node by node, sums in an order of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_gym import dataflow
from gensor_gym.dataflow.expressions import Call, Constant, Expression, Operand, operands
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Broadcast, Concat, Contract, Map, Node, Pad, Reduce, Reshape, Slice, Transpose, Value

F = np.float32
NUMPY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "negative": np.negative,
    "absolute": np.abs, "maximum": np.maximum, "minimum": np.minimum, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "rsqrt": lambda x: F(1) / np.sqrt(x), "tanh": np.tanh, "less": lambda a, b: (a < b).astype(F),
    "erf": lambda x: np.vectorize(__import__("math").erf, otypes=[F])(x), "where": lambda c, a, b: np.where(c != 0, a, b),
    "sin": np.sin, "cos": np.cos, "round": np.rint,
}  # fmt: skip

SMALL: dict[str, dict[str, int]] = {
    "rope": {"t": 3, "h": 2, "d": 10}, "channel_shuffle": {"n": 2, "groups": 3, "c": 4, "h": 2, "w": 3},
    "transpose_relu": {"a": 2, "b": 3, "c": 5, "d": 4}, "relu_add": {"a": 1, "b": 2, "c": 3, "d": 5},
    "relu_sub": {"a": 1, "b": 2, "c": 3, "d": 5}, "transpose_last": {"a": 3, "b": 4, "c": 2},
    "reduce_mean": {"a": 2, "b": 3, "c": 7}, "kv_concat": {"h": 2, "t": 3, "d": 4},
}  # fmt: skip
ROWS = {"m": 5, "n": 37}


def of_suite(name: str) -> Dataflow:
    """A factory's graph at small extents."""
    return dataflow.make(name, **SMALL.get(name, ROWS))


def inputs_of(graph: Dataflow, seed: int = 0, scale: float = 1.0) -> list[np.ndarray]:
    """Normal numbers."""
    rng = np.random.default_rng(seed)
    return [scale * rng.standard_normal(value.shape).astype(np.float32) for value in graph.inputs]


def in_float32(graph: Dataflow, inputs: Sequence[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """Outputs as a kernel computes them that rounds after every operation and adds in random order."""
    known = {value.name: array.astype(F) for value, array in zip(graph.inputs, inputs, strict=True)}
    with np.errstate(all="ignore"):
        for name, node in graph.nodes:
            known[name] = _computed(node, known, rng)
    return [known[name] for name in graph.returns]


def _computed(node: Node, known: dict[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    given = [known[name] for name in node.inputs]
    match node:
        case Map(expression):
            return np.broadcast_to(_scalar(expression, known), given[0].shape).astype(F)
        case Reduce(_, "max", axes):
            return given[0].max(axis=axes, keepdims=True)
        case Reduce(_, _, axes):
            return _added(given[0], axes, rng)
        case Broadcast(_, to):
            return np.broadcast_to(given[0], to)
        case Transpose(_, order):
            return given[0].transpose(order)
        case Reshape(_, to):
            return given[0].reshape(to)
        case Slice(_, axis, start, stop):
            return np.take(given[0], range(start, stop), axis)
        case Concat(_, axis):
            return np.concatenate(given, axis)
        case Pad(_, axis, before, after, value):
            shape = list(given[0].shape)
            shape[axis] += before + after
            out = np.full(shape, value, F)
            out[tuple(slice(before, before + n) if a == axis else slice(None) for a, n in enumerate(given[0].shape))] = given[0]
            return out
        case Contract(operator, _):
            return operator.reference(*given).astype(F)


def _scalar(expression: Expression, known: dict[str, np.ndarray]) -> np.ndarray:
    if isinstance(expression, Operand):
        return known[expression.name]
    if isinstance(expression, Constant):
        return F(expression.value)
    return np.asarray(NUMPY[expression.function](*(_scalar(part, known) for part in expression.arguments)), F)


def _added(array: np.ndarray, axes: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """One after another, in a random order."""
    moved = np.moveaxis(array, axes, range(len(axes)))
    rows = moved.reshape(-1, *moved.shape[len(axes) :])
    total = np.zeros(rows.shape[1:], F)
    for row in rng.permutation(len(rows)):
        total = total + rows[row]
    return np.expand_dims(total, axes)


_SAFE = ("add", "subtract", "multiply", "maximum", "minimum", "negative", "absolute", "exp", "tanh", "erf")


def random_dataflow(seed: int, most: int = 10) -> Dataflow:
    """A graph of up to so many nodes over small tensors, each kind of node among them now and then."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(rng.choice([1, 2, 3, 5, 8])) for _ in range(rng.integers(1, 4)))
    inputs = [Value(f"x{i}", shape, constant=bool(rng.integers(2))) for i in range(rng.integers(1, 4))]
    shapes = {value.name: value.shape for value in inputs}
    nodes: list[tuple[str, Node]] = []
    for number in range(int(rng.integers(1, most))):
        node = _random_node(rng, shapes)
        nodes.append((f"v{number}", node))
        shapes[f"v{number}"] = node.shape(*(shapes[name] for name in node.inputs))
    read = {name for _, node in nodes for name in node.inputs}
    ends = [name for name, _ in nodes if name not in read]
    inputs = [value for value in inputs if value.name in read]
    return Dataflow(f"random_{seed}", tuple(inputs), tuple(nodes), tuple(ends))


def _random_node(rng: np.random.Generator, shapes: dict[str, tuple[int, ...]]) -> Node:
    name = str(rng.choice(list(shapes)))
    shape = shapes[name]
    axis = int(rng.integers(len(shape)))
    kind = rng.integers(9)
    if kind == 0:
        axes = tuple(a for a in range(len(shape)) if a == axis or rng.integers(3) == 0)
        return Reduce(name, "max" if rng.integers(2) else "sum", axes)
    if kind == 1:
        return Transpose(name, tuple(int(a) for a in rng.permutation(len(shape))))
    if kind == 2:
        return Broadcast(name, (2, *(4 if extent == 1 else extent for extent in shape)) if len(shape) < 4 else shape)
    if kind == 3:
        start = int(rng.integers(shape[axis]))
        return Slice(name, axis, start, int(rng.integers(start + 1, shape[axis] + 1)))
    if kind == 4:
        return Pad(name, axis, int(rng.integers(3)), int(rng.integers(3)), float(rng.integers(2)))
    if kind == 5:
        return Reshape(name, (int(np.prod(shape)),))
    if kind == 6:
        same = [other for other, of in shapes.items() if of == shape]
        return Concat((name, str(rng.choice(same))), axis)
    same = [other for other, of in shapes.items() if of == shape]
    expression = _random_expression(rng, same, 3)
    return Map(expression if operands(expression) else Call("add", (Operand(name), expression)))


def _random_expression(rng: np.random.Generator, names: list[str], depth: int) -> Expression:
    if depth == 0 or rng.integers(4) == 0:
        return Operand(str(rng.choice(names))) if rng.integers(4) else Constant(float(rng.choice([-1.5, 0.5, 0.1, 2.0])))
    if rng.integers(6) == 0:
        condition = Call("less", (_random_expression(rng, names, 0), _random_expression(rng, names, 0)))
        return Call("where", (condition, *(_random_expression(rng, names, depth - 1) for _ in range(2))))
    function = str(rng.choice(_SAFE))
    arity = 2 if function in _SAFE[:5] else 1
    parts = tuple(_random_expression(rng, names, depth - 1) for _ in range(arity))
    return Constant(-parts[0].value) if function == "negative" and isinstance(parts[0], Constant) else Call(function, parts)
