"""Dataflow graphs as text, in the syntax of a Python function that is never executed.

    def softmax(x: float32[128, 768]):
        top = reduce_max(x, axes=[1])
        e = exp(x - top)
        total = reduce_sum(e, axes=[1])
        y = e / total
        return y

Operands of an expression are broadcast as in NumPy. The graph then has `broadcast` nodes, named after their source, which
`text_of` writes explicitly. A parameter that is equal at every call is `weight: constant(float32[768])`, or, for 0 up to the
diagonal and minus infinity after it, `mask: triangle(float32[64, 64], 0, 0.0, -inf)`. Rows of a parameter that are 96 elements
apart in memory are `x: pitched(float32[128, 64], 96)`, of an output `return pitched(y, 96)`. A node that computes in int64 is
written `n: int64 = a + b`, a node whose value is rounded to 16 bits or int8 `n: bfloat16 = a + b`.
"""

from __future__ import annotations

import ast
import math
import reprlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import numpy as np

from gensor_gym.dataflow.expressions import MOST_IN_FLOAT64, Call, Constant, Expression, Operand, operands, renamed
from gensor_gym.dataflow.graph import MOST_AXES, MOST_ELEMENTS, Dataflow
from gensor_gym.dataflow.nodes import (
    DTYPES,
    STORED,
    Broadcast,
    Concat,
    Contract,
    Gather,
    Map,
    Node,
    Pad,
    Reduce,
    Reshape,
    Scatter,
    Slice,
    Transpose,
    Triangle,
    Value,
)  # fmt: skip
from gensor_gym.dataflow.scalars import SCALARS
from gensor_gym.operators.text import parse as parse_operator
from gensor_gym.registry import near

MOST_CHARACTERS, MOST_NESTED = 100_000, 64
"""Limits on the characters of a text and on the nesting of an expression."""
_AROUND = 8
"""Number of levels that a syntax tree has in addition to those of an expression in it."""
_SIGNS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}
_CONSTANTS = {"constant": 1, "triangle": 4}
"""Name of a function in the type of a parameter that is equal at every call -> its number of arguments."""
_PITCHED = "pitched"
_NODES: dict[str, Callable[..., Node]] = {
    "reduce_sum": lambda source, axes: Reduce(source, "sum", tuple(axes)),
    "reduce_max": lambda source, axes: Reduce(source, "max", tuple(axes)),
    "broadcast": lambda source, to: Broadcast(source, tuple(to)),
    "transpose": lambda source, order: Transpose(source, tuple(order)),
    "reshape": lambda source, to: Reshape(source, tuple(to)),
    "slice": lambda source, axis, start, stop: Slice(source, axis, start, stop),
    "gather": lambda table, ids: Gather(table, ids),
    **{
        f"scatter_{body}": lambda source, ids, rows, first=first, body=body: Scatter(source, ids, rows, body, float(first))
        for body, first in (("sum", 0.0), ("max", -math.inf), ("prod", 1.0))
    },
    "concat": lambda *sources, axis: Concat(sources, axis),
    "pad": lambda source, axis, before, after, value=0.0: Pad(source, axis, before, after, float(value)),
    "contract": lambda *sources, operator: Contract(parse_operator(operator), sources),
}
"""Name of a function in the text of a graph -> function that makes the node, from names of sources and keywords. Maps are not
among them."""


def parse(text: str) -> Dataflow:
    """Return the graph that a text describes. ValueError gives the line and the expected syntax."""
    if not isinstance(text, str):
        raise ValueError(f"dataflow text {text!r}: expected text")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"dataflow text of {len(text)} characters: expected at most {MOST_CHARACTERS}")
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"dataflow text does not parse: {str(error) or 'nested too deeply'}") from error
    if _levels(module) > MOST_NESTED + _AROUND:
        raise ValueError(f"dataflow text: expected expressions nested at most {MOST_NESTED} deep")
    if len(module.body) != 1 or not isinstance(function := module.body[0], ast.FunctionDef):
        raise ValueError("dataflow text: expected one function, such as `def f(x: float32[4, 4]): ..`")
    return _Reader(function).graph()


def _levels(tree: ast.AST) -> int:
    """Return the depth of a syntax tree, counted without recursion: a tree may be too deep for recursive functions."""
    count, level = 0, [tree]
    while level:
        count, level = count + 1, [inner for node in level for inner in ast.iter_child_nodes(node)]
    return count


def text_of(graph: Dataflow) -> str:
    """Return the text of a graph, which `parse` reads."""
    given = ", ".join(f"{value.name}: {_type_of(value)}" for value in graph.inputs)
    kinds = {name: f": {graph.whole_dtype}" for name in graph.whole} | {name: f": {kind}" for name, kind in graph.rounded}
    lines = [f"    {name}{kinds.get(name, '')} = {_text_of_node(node)}" for name, node in graph.nodes]
    pitches = dict(graph.pitches)
    last = (f"{_PITCHED}({name}, {pitches[name]})" if name in pitches else name for name in graph.returns)
    return "\n".join([f"def {graph.name}({given}):", *lines, f"    return {', '.join(last)}"]) + "\n"


def _type_of(value: Value) -> str:
    shaped = f"{value.dtype}{list(value.shape)}"
    if value.pitch:
        return f"{_PITCHED}({shaped}, {value.pitch})"
    if (known := value.triangle) is not None:
        return f"triangle({shaped}, {known.diagonal}, {Constant(known.below)}, {Constant(known.above)})"
    return f"constant({shaped})" if value.constant else shaped


def _text_of_node(node: Node) -> str:
    sources = ", ".join(node.inputs)
    match node:
        case Map(expression):
            return str(expression)
        case Reduce(_, body, axes):
            return f"reduce_{body}({sources}, axes={list(axes)})"
        case Broadcast(_, to):
            return f"broadcast({sources}, to={list(to)})"
        case Transpose(_, order):
            return f"transpose({sources}, order={list(order)})"
        case Reshape(_, to):
            return f"reshape({sources}, to={list(to)})"
        case Slice(_, axis, start, stop):
            return f"slice({sources}, axis={axis}, start={start}, stop={stop})"
        case Gather():
            return f"gather({sources})"
        case Scatter(_, _, rows, body, start):
            return f"scatter_{body}({sources}, rows={rows}, first={Constant(start)})"
        case Concat(_, axis):
            return f"concat({sources}, axis={axis})"
        case Pad(_, axis, before, after, value):
            return f"pad({sources}, axis={axis}, before={before}, after={after}, value={Constant(value)})"
        case Contract(operator, _):
            return f"contract({sources}, operator={str(operator)!r})"


class _Reader:
    def __init__(self, function: ast.FunctionDef) -> None:
        self.function = function
        self.inputs: list[Value] = []
        self.nodes: list[tuple[str, Node]] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.whole, self.rounded = set[str](), set[tuple[str, str]]()

    def graph(self) -> Dataflow:
        """Return the graph of the function that was read. ValueError gives the line and the expected syntax."""
        rest = self.function.args
        if rest.posonlyargs or rest.kwonlyargs or rest.vararg or rest.kwarg or rest.defaults or self.function.decorator_list:
            raise self._wrong(self.function, "plain parameters without defaults, and no decorator")
        for parameter in rest.args:
            value = self._parameter(parameter)
            self.inputs.append(value)
            self.shapes[value.name] = value.shape
        *lines, last = self.function.body
        for line in lines:
            self._line(line)
        if not isinstance(last, ast.Return) or last.value is None:
            raise self._wrong(last, "`return` with the names of the outputs")
        outputs = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
        returns, pitches = list[str](), set[tuple[str, int]]()
        for output in outputs:
            made, pitch = self._pitched(output)
            returns.append(self._name(made))
            pitches |= {(returns[-1], pitch)} if pitch else set()
        types = frozenset(self.whole), frozenset(self.rounded), frozenset(pitches)
        return Dataflow(self.function.name, tuple(self.inputs), tuple(self.nodes), tuple(returns), "", *types)

    def _pitched(self, made: ast.expr | None) -> tuple[Any, int]:
        """Return (what is between the parentheses of `pitched(.., pitch)`, pitch), or (`made`, 0) for anything else."""
        if not (isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == _PITCHED):
            return made, 0
        pitch = self._literal(made.args[1]) if len(made.args) == 2 and not made.keywords else 0
        if not _is_whole(pitch) or pitch < 1:
            raise self._wrong(made, f"`{_PITCHED}(.., pitch)` with a whole number, 1 or more")
        return made.args[0], pitch

    def _parameter(self, parameter: ast.arg) -> Value:
        (kind, pitch), constant, known = self._pitched(parameter.annotation), False, list[Any]()
        if isinstance(kind, ast.Call) and isinstance(kind.func, ast.Name) and _CONSTANTS.get(kind.func.id) == len(kind.args):
            known = [self._literal(part) for part in kind.args[1:]]
            kind, constant = kind.args[0], True
        if not (isinstance(kind, ast.Subscript) and isinstance(kind.value, ast.Name) and kind.value.id in DTYPES):
            raise self._wrong(parameter, f"a type such as `{parameter.arg}: float32[4, 4]`, of {', '.join(DTYPES)}")
        shape = self._literal(kind.slice)
        extents = self._extents(kind, shape if isinstance(shape, tuple) else [shape])
        if known and not (len(extents) > 1 and _is_whole(known[0]) and known[0] >= 0 and all(map(_is_number, known))):
            raise self._wrong(parameter, "a triangle of two axes or more, a diagonal of 0 or more, and two numbers")
        triangle = Triangle(known[0], float(known[1]), float(known[2])) if known else None
        return Value(parameter.arg, extents, kind.value.id, constant, triangle, pitch=pitch)

    def _line(self, line: ast.stmt) -> None:
        targets = line.targets if isinstance(line, ast.Assign) else [line.target] if isinstance(line, ast.AnnAssign) else []
        if not (isinstance(line, ast.Assign | ast.AnnAssign) and len(targets) == 1 and isinstance(targets[0], ast.Name)):
            raise self._wrong(line, "`name = expression`")
        name, made = targets[0].id, line.value
        if isinstance(line, ast.AnnAssign):
            kind, kinds = ast.unparse(line.annotation), (Dataflow.whole_dtype, *STORED)
            if made is None or kind not in kinds:
                raise self._wrong(line, f"`{name}: {Dataflow.whole_dtype} = expression`, of {', '.join(kinds)}")
            if kind == Dataflow.whole_dtype:
                self.whole.add(name)
            else:
                self.rounded.add((name, kind))
        assert made is not None
        special = isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id in _NODES
        self._add(line, name, self._node(made) if special else self._map(made))  # type: ignore[arg-type]

    def _node(self, call: ast.Call) -> Node:
        assert isinstance(call.func, ast.Name)
        options = {str(word.arg): self._literal(word.value) for word in call.keywords}
        try:
            _check_options(options)
            return _NODES[call.func.id](*map(self._name, call.args), **options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.function.name}, line {call.lineno}: {call.func.id}: {error}") from error

    def _map(self, made: ast.expr) -> Map:
        """Return the map of an expression. A broadcast is added before it for every operand that is smaller than the result."""
        expression = self._expression(made, 0)
        names = operands(expression)
        if not names:
            raise self._wrong(made, "an expression of at least one value")
        if unknown := [name for name in names if name not in self.shapes]:
            raise self._wrong(made, f"a name that was made before in place of {unknown[0]!r}{near(unknown[0], self.shapes)}")
        try:
            shape = np.broadcast_shapes(*(self.shapes[name] for name in names))
        except ValueError as error:
            raise ValueError(f"{self.function.name}, line {made.lineno}: {error}") from error
        return Map(renamed(expression, {name: self._repeated(made, name, shape) for name in names}))

    def _repeated(self, made: ast.expr, name: str, shape: tuple[int, ...]) -> str:
        if self.shapes[name] == shape:
            return name
        wanted = Broadcast(name, shape)
        known = next((other for other, node in self.nodes if node == wanted), None)
        if known is not None:
            return known
        number = sum(isinstance(node, Broadcast) and node.source == name for _, node in self.nodes)
        fresh = f"{name}_wide" + (f"_{number}" if number else "")
        self._add(made, fresh, wanted)
        return fresh

    def _add(self, line: ast.AST, name: str, node: Node) -> None:
        if unknown := [one for one in node.inputs if one not in self.shapes]:
            raise self._wrong(line, f"a name that was made before in place of {unknown[0]!r}{near(unknown[0], self.shapes)}")
        if name in self.shapes:
            raise self._wrong(line, f"a new name in place of {name!r}")
        try:
            self.shapes[name] = node.shape(*(self.shapes[one] for one in node.inputs))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.function.name}, line {getattr(line, 'lineno', 0)}: {error}") from error
        self.nodes.append((name, node))

    def _expression(self, made: ast.expr, depth: int) -> Expression:
        if depth > MOST_NESTED:
            raise self._wrong(made, f"expressions nested at most {MOST_NESTED} deep")
        match made:
            case ast.Name(id="inf"):
                return Constant(float("inf"))
            case ast.Name(id=name):
                return Operand(name)
            case ast.Constant(value=number) if _is_number(number):
                return Constant(number if isinstance(number, int) and abs(number) > MOST_IN_FLOAT64 else float(number))
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                part = self._expression(inner, depth + 1)
                return Constant(-part.value) if isinstance(part, Constant) else Call("negative", (part,))
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _SIGNS:
                return Call(_SIGNS[type(sign)], (self._expression(left, depth + 1), self._expression(right, depth + 1)))
            case ast.Compare(left=left, ops=[ast.Lt()], comparators=[right]):
                return Call("less", (self._expression(left, depth + 1), self._expression(right, depth + 1)))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in SCALARS:
                parts = tuple(self._expression(one, depth + 1) for one in arguments)
                try:
                    return Call(name, parts)
                except ValueError as error:
                    raise ValueError(f"{self.function.name}, line {made.lineno}: {error}") from error
            case ast.Call(func=ast.Name(id=name)):
                hint = near(name, [*SCALARS, *_NODES])
                raise self._wrong(made, f"a function of {', '.join(SCALARS)} in place of {name!r}{hint}")
        raise self._wrong(made, "names, numbers, + - * / <, and functions")

    def _name(self, made: ast.expr) -> str:
        if not isinstance(made, ast.Name):
            raise self._wrong(made, "the name of a value")
        return made.id

    def _literal(self, made: ast.expr) -> Any:
        if isinstance(made, ast.Name) and made.id == "inf":
            return float("inf")
        if isinstance(made, ast.UnaryOp) and isinstance(made.op, ast.USub) and isinstance(made.operand, ast.Name):
            return -self._literal(made.operand)
        try:
            return ast.literal_eval(made)
        except (ValueError, TypeError, RecursionError, MemoryError) as error:
            raise self._wrong(made, "a literal number, list or text") from error

    def _extents(self, made: ast.AST, shape: Any) -> tuple[int, ...]:
        if not all(isinstance(extent, int) and not isinstance(extent, bool) and extent > 0 for extent in shape):
            raise self._wrong(made, "extents of 1 or more")
        return tuple(shape)

    def _wrong(self, made: ast.AST, expected: str) -> ValueError:
        shown = ast.unparse(made)
        shown = shown if len(shown) < 60 else f"{shown[:57]}..."
        return ValueError(f"{self.function.name}, line {getattr(made, 'lineno', 1)}: `{shown}`: expected {expected}")


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, float) or (
        isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    )


def _is_whole(value: object) -> bool:
    """Return whether a literal is an integer that may be an extent or an index."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST_ELEMENTS


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) <= MOST_AXES and all(map(_is_whole, value))


Kind = tuple[Callable[[object], bool], str]
_WHOLE: Kind = _is_whole, f"a whole number up to {MOST_ELEMENTS}"
_LIST: Kind = _is_list, f"a list of at most {MOST_AXES} whole numbers"
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("axis", "start", "stop", "before", "after", "rows"), _WHOLE),
    **dict.fromkeys(("axes", "to", "order"), _LIST), **dict.fromkeys(("value", "first"), (_is_number, "a number")),
    "operator": (lambda value: isinstance(value, str), "the text of an operator"),
}  # fmt: skip
"""Keyword in the text of a graph -> (check of its value, the expected value in words)."""


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise ValueError unless keywords accept their values. Nodes check unknown keywords."""
    for word, value in options.items():
        fits, expected = _KINDS.get(word, (lambda _: True, ""))
        if not fits(value):
            raise ValueError(f"{word}={reprlib.repr(value)}: expected {expected}")
