"""Reads a torch module whose inputs have changing sizes. `torch.export` traces it once; any sizes then give a network."""

from __future__ import annotations

import dataclasses
import operator as python
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.fx.node import map_arg
from torch.utils import _pytree as trees

from gensor_gym.frontends.builder import copied
from gensor_gym.frontends.forms import Examples
from gensor_gym.frontends.torch_export import Reader, exported
from gensor_gym.frontends.unsupported import Unsupported, refusing
from gensor_gym.networks.network import Network

_NO_BOUND = 1 << 62
"""Ranges of torch whose end is this number or more have no end."""
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
        known: dict[Any, torch.Tensor] = {}
        self._state, self._constants = (_held(some, known) for some in (self.program.state_dict, self.program.constants))
        self._copies = _Copies([*self._state.values(), *self._constants.values()])
        self.symbols = _symbols(self.program)
        """The sizes that change, in the order of the inputs' axes."""

    @cached_property
    def _returned(self) -> list[list[Callable[..., Any]]]:
        """Functions that compute the extent of each axis of each output from the sizes."""
        import sympy

        (results,) = next(node for node in self.program.graph.nodes if node.op == "output").args
        values = [one.meta["val"] for one in results if isinstance(one, torch.fx.Node)]
        names = [sympy.Symbol(symbol.name) for symbol in self.symbols]
        own = {one.name: one for one in names}

        def made(extent: Any) -> Callable[..., Any]:
            expression = sympy.sympify(extent.node.expr if isinstance(extent, torch.SymInt) else extent)
            plain = expression.subs({one: own[str(one)] for one in expression.free_symbols})
            return cast(Callable[..., Any], sympy.lambdify(names, plain, [{"FloorDiv": python.floordiv}, "math"]))

        return [[made(extent) for extent in value.shape] for value in values if isinstance(value, torch.Tensor)]

    def returned(self, sizes: Sequence[Any]) -> list[list[Any]]:
        """Return the shapes of the outputs for values of the symbols, which may be symbols of torch."""
        return [[extent(*sizes) for extent in extents] for extents in self._returned]

    def network(self, sizes: Sequence[int]) -> Network:
        """Return the network for one value of each symbol. Unsupported for operations that are not covered."""
        named = {symbol.name: size for symbol, size in zip(self.symbols, sizes, strict=True)}
        with refusing():
            program = _specialised(self.program, named, self._state, self._constants)
            reader = Reader(cast(ExportedProgram, program), self.module.forward, self.places)
            reader.builder.copied = self._copies.of
            return reader.network(type(self.module).__name__)


def _held(tensors: Mapping[str, Any], known: dict[Any, torch.Tensor]) -> dict[str, Any]:
    """Copy tensors, which a module may change later, when other sizes are asked for. `known` has the copies made so far."""
    found = {}
    for name, one in tensors.items():
        if isinstance(one, torch.Tensor):
            key = one.data_ptr(), one.shape, one.stride(), one.dtype
            one = known[key] if key in known else known.setdefault(key, one.detach().clone())
        found[name] = one
    return found


class _Copies:
    """Arrays of a program's tensors, which the networks of all sizes share."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self._own = {one.data_ptr() for one in tensors if isinstance(one, torch.Tensor)}
        self._made: dict[object, np.ndarray] = {}

    def of(self, array: np.ndarray, dtype: str) -> np.ndarray:
        """Return an array in row-major order in a data type, the same one for the same memory of the program."""
        address = array.ctypes.data
        if address not in self._own:
            return copied(array, dtype)
        if array.dtype == dtype and array.flags.c_contiguous:
            return array  # nothing changes it
        key = address, array.shape, array.strides, array.dtype, dtype
        if key not in self._made:
            self._made[key] = copied(array, dtype)
        return self._made[key]


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
                if not getattr(bounds.upper, "is_Integer", True) or int(bounds.upper) >= _NO_BOUND:
                    raise ValueError(f"dynamic_shapes: {called} has no largest size: {_WANTED}")
                least, most = max(1, int(bounds.lower)), int(bounds.upper)
                found[str(expression)] = Symbol(str(expression), least, most, place, axis, called)
    if missing := [called for name, called in read.items() if name not in found]:
        raise ValueError(f"dynamic_shapes: the size of {missing[0]} is computed: expected an axis that has the size itself")
    if not found:
        raise ValueError("dynamic_shapes: no axis of an input changes: expected torch.export.Dim for one or more")
    return tuple(found.values())


def _specialised(
    program: ExportedProgram, sizes: Mapping[str, int], state: Mapping[str, Any], constants: Mapping[str, Any]
) -> _Specialised:
    """Evaluate the program's shapes for the values of its symbols. Tensors have no memory."""
    graph, made, values = torch.fx.Graph(), dict[str, Any](), _Values(sizes)
    for node in program.graph.nodes:
        if node.op == "output":
            made[node.name] = graph.output(map_arg(node.args[0], lambda one: made[one.name]))
        elif not _is_check(node):
            value = values.of(node.meta.get("val"))
            if isinstance(value, int | float | bool) and node.op == "call_function":
                made[node.name] = value  # sizes become constants of the operations that read them
                continue
            args, options = (map_arg(some, lambda one: made[one.name]) for some in (node.args, node.kwargs))
            new = made[node.name] = graph.create_node(node.op, node.target, args, options, node.name)
            new.name = node.name  # which may be a word that torch gives no other node
            new.meta = {**node.meta, "val": value}
    signature = dataclasses.replace(program.graph_signature)
    return _Specialised(graph, signature, program.call_spec, state, constants)


def _is_check(node: torch.fx.Node) -> bool:
    """Return whether an operation only asserts something about sizes or types, which torch's export has done."""
    return not node.users and any(word in str(node.target) for word in ("assert", "sym_constrain"))


class _Values:
    """Evaluates shapes and numbers of an exported program for values of its symbols."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes, self.known = sizes, dict[Any, Any]()

    def of(self, value: Any) -> Any:
        """Return a node's value: a tensor without memory, a number, or a list of these."""
        if isinstance(value, torch.Tensor):
            return torch.empty([self.of(extent) for extent in value.shape], dtype=value.dtype, device="meta")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            expression = value.node.expr
            if expression not in self.known:
                self.known[expression] = self._number(expression, type(value))
            return self.known[expression]
        return type(value)(map(self.of, value)) if isinstance(value, list | tuple) else value

    def _number(self, expression: Any, kind: type) -> int | float | bool:
        if unknown := [str(one) for one in expression.free_symbols if str(one) not in self.sizes]:
            raise Unsupported(f"a size {unknown[0]} that numbers say: expected shapes that are computed from the inputs' shapes")
        made = expression.subs({one: self.sizes[str(one)] for one in expression.free_symbols})
        return bool(made) if kind is torch.SymBool else float(made) if kind is torch.SymFloat else int(made)
