"""Reads a torch module whose inputs have changing sizes. `torch.export` traces it once; any sizes then give a network."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.fx.node import map_arg
from torch.utils import _pytree as trees

from gensor_gym.frontends.forms import Examples
from gensor_gym.frontends.torch_export import Reader, exported
from gensor_gym.frontends.unsupported import refusing
from gensor_gym.networks.network import Network

_INT_OO = 1 << 62
"""Bounds of torch's ranges from this number on mean that there is no bound."""
_WANTED = "expected torch.export.Dim(name, min=.., max=..)"


@dataclass(frozen=True)
class Symbol:
    """A size that changes from call to call, and its range. Its value is the extent of an axis of an input."""

    name: str
    """Torch's name, such as `s27`."""
    least: int
    most: int
    place: int
    """Index of the input."""
    axis: int
    called: str
    """The axis as text, for messages."""


@dataclass(frozen=True)
class _Specialised:
    """An exported program for given sizes: the attributes of `ExportedProgram` that `Reader` reads."""

    graph: torch.fx.Graph
    graph_signature: Any
    call_spec: Any
    state_dict: Any
    constants: Any


class DynamicProgram:
    """A torch module that was exported for ranges of sizes."""

    def __init__(self, module: Any, example_inputs: Examples, dynamic_shapes: Any) -> None:
        """Export a module. `dynamic_shapes` are those of `torch.export.export`.

        Raises:
            Unsupported: if torch cannot export it for all sizes of the ranges, with torch's reason.
            ValueError: if an axis has no range, or no axis of an input has a size's value.
        """
        _check_ranges(dynamic_shapes)
        if isinstance(module, ExportedProgram):
            module = module.module()
        if module.training and not isinstance(module, torch.fx.GraphModule):
            raise ValueError(f"{type(module).__name__} is in training mode: expected module.eval()")
        self.module = module
        self.places = 0 if isinstance(example_inputs, Mapping) else len(example_inputs)
        with refusing():
            self.program = exported(module, example_inputs, dynamic_shapes)
        self.symbols = _symbols(self.program)
        """The sizes that change, in the order of the inputs' axes."""

    def network(self, sizes: Sequence[int]) -> Network:
        """Return the network for one value of each symbol. Unsupported for operations that are not covered."""
        named = {symbol.name: size for symbol, size in zip(self.symbols, sizes, strict=True)}
        with refusing():
            return Reader(_specialised(self.program, named), self.module.forward, self.places).network(type(self.module).__name__)


def _check_ranges(dynamic_shapes: Any) -> None:
    kinds = getattr(torch.export.dynamic_shapes, "_DimHint", ())
    leaves = trees.tree_leaves(dynamic_shapes, is_leaf=lambda one: isinstance(one, kinds))
    for one in leaves:
        hint = getattr(getattr(one, "type", None), "name", "")
        if isinstance(one, kinds) and hint != "STATIC" and None in (getattr(one, "min", None), getattr(one, "max", None)):
            raise ValueError(f"dynamic_shapes: an axis of Dim.{hint} has no range: {_WANTED}")


def _symbols(program: ExportedProgram) -> tuple[Symbol, ...]:
    found: dict[str, Symbol] = {}
    read: dict[str, str] = {}
    given = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    inputs = [spec.arg for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    tensors = [one for one in inputs if isinstance(one, TensorArgument)]
    for place, one in enumerate(tensors):
        for axis, extent in enumerate(given[one.name].shape):
            if isinstance(extent, int):
                continue
            expression, called = extent.node.expr, f"axis {axis} of {one.name}"
            read |= {str(symbol): called for symbol in expression.free_symbols}
            if expression.is_Symbol and str(expression) not in found:
                bounds = program.range_constraints[expression]
                if not bounds.upper.is_Integer and not isinstance(bounds.upper, int) or int(bounds.upper) >= _INT_OO:
                    raise ValueError(f"dynamic_shapes: {called} has no largest size: {_WANTED}")
                found[str(expression)] = Symbol(str(expression), max(1, int(bounds.lower)), int(bounds.upper), place, axis, called)
    if missing := [called for name, called in read.items() if name not in found]:
        raise ValueError(f"dynamic_shapes: the size of {missing[0]} is computed: expected an axis that has the size itself")
    if not found:
        raise ValueError("dynamic_shapes: no axis of an input changes: expected torch.export.Dim for one or more")
    return tuple(found.values())


def _specialised(program: ExportedProgram, sizes: Mapping[str, int]) -> _Specialised:
    """Evaluate the program's shapes for the values of its symbols, with tensors that have no elements in memory."""
    graph, made, values = torch.fx.Graph(), dict[str, Any](), dict[str, Any]()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        for node in program.graph.nodes:
            if node.op == "placeholder":
                made[node.name] = graph.placeholder(node.name)
                values[node.name] = _given(node.meta.get("val"), sizes, mode)
            elif node.op == "output":
                made[node.name] = graph.output(map_arg(node.args[0], lambda one: made[one.name]))
                continue
            elif not _is_check(node):
                _evaluate(graph, node, made, values)
            if isinstance(new := made.get(node.name), torch.fx.Node):
                new.meta = {**node.meta, "val": values[node.name]}
    signature = program.graph_signature
    specs = [dataclasses.replace(spec) for spec in signature.output_specs]
    return _Specialised(
        graph, dataclasses.replace(signature, output_specs=specs), program.call_spec, program.state_dict, program.constants
    )


def _evaluate(graph: torch.fx.Graph, node: torch.fx.Node, made: dict[str, Any], values: dict[str, Any]) -> None:
    """Evaluate one operation. Numbers, such as sizes, become constants of the operations that read them."""
    target: Callable[..., Any] = node.target  # type: ignore[assignment]
    found = target(*map_arg(node.args, lambda one: values[one.name]), **map_arg(node.kwargs, lambda one: values[one.name]))
    values[node.name] = found
    if isinstance(found, int | float | bool):
        made[node.name] = found
        return
    made[node.name] = graph.create_node("call_function", target, *_read(node, made), name=node.name)


def _read(node: torch.fx.Node, made: Mapping[str, Any]) -> tuple[Any, Any]:
    return map_arg(node.args, lambda one: made[one.name]), map_arg(node.kwargs, lambda one: made[one.name])


def _is_check(node: torch.fx.Node) -> bool:
    """Return whether an operation only asserts something about sizes or types, which torch's export has done."""
    return not node.users and any(word in str(node.target) for word in ("assert", "sym_constrain"))


def _given(value: Any, sizes: Mapping[str, int], mode: FakeTensorMode) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    with mode:
        return torch.empty([_extent(extent, sizes) for extent in value.shape], dtype=value.dtype)


def _extent(extent: Any, sizes: Mapping[str, int]) -> int:
    if isinstance(extent, int):
        return extent
    expression = extent.node.expr
    made = expression.subs({symbol: sizes[str(symbol)] for symbol in expression.free_symbols})
    assert math.isfinite(made)
    return int(made)
