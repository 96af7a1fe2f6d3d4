"""A torch module as a network, by `torch.export`: operations that `covered.TABLE` has stay whole, others are decomposed first."""

from __future__ import annotations

import operator as python
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from gensor_gym.frontends import aten, aten_moves  # noqa: F401  (which fill the table)
from gensor_gym.frontends.builder import Builder
from gensor_gym.frontends.covered import TABLE
from gensor_gym.networks.network import Network

MOST_NODES, MOST_BYTES = 4096, 8 << 30
"""Limits on what is taken: operations of a program, bytes of its weights."""


class Unsupported(ValueError):
    """A module has an operation, or a kind of tensor, that has no kernels here; the text names it and its place."""


def from_torch(module: torch.nn.Module, example_inputs: Sequence[torch.Tensor], name: str = "") -> Network:
    """The network of a module in evaluation mode, for inputs of the shapes of `example_inputs`; `name` is the class's by default.

    Raises:
        Unsupported: for what is not covered, with its place in the module.
        ValueError: for a module in training mode, for inputs that are no float32 tensors, for programs beyond the limits.
    """
    if module.training:
        raise ValueError(f"{type(module).__name__} is in training mode: expected module.eval()")
    for place, given in enumerate(example_inputs):
        if not isinstance(given, torch.Tensor) or given.dtype != torch.float32 or given.device.type != "cpu":
            raise ValueError(f"example input {place} is {_said(given)}: expected a float32 tensor on the CPU")
    with torch.no_grad():
        program = torch.export.export(module, tuple(example_inputs))
        table = torch.export.default_decompositions()
        for target in [target for target in table if str(target) in TABLE]:
            del table[target]
        program = program.run_decompositions(table)
    return _Reader(program).network(name or type(module).__name__)


def _said(given: Any) -> str:
    return f"{given.dtype} on {given.device}" if isinstance(given, torch.Tensor) else f"a {type(given).__name__}"


class _Reader:
    """One exported program, operation by operation."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program, self.builder = program, Builder()
        self.made: dict[str, Any] = {}
        """Of every node that was read the name of its value, or a tuple of names."""
        self.waiting: dict[str, torch.Tensor] = {}
        """Tensors of the module that nothing has read yet."""
        nodes = list(program.graph.nodes)
        if len(nodes) > MOST_NODES:
            raise ValueError(f"a program of {len(nodes)} operations: expected at most {MOST_NODES}")

    def network(self, name: str) -> Network:
        """See `from_torch`."""
        self._parameters()
        for node in self.program.graph.nodes:
            if node.op == "call_function":
                self.made[node.name] = self._operation(node)
        (results,) = next(node for node in self.program.graph.nodes if node.op == "output").args
        self.builder.origin = "the outputs"
        return self.builder.network(name, [self._given(result) for result in results])

    def _parameters(self) -> None:
        """Inputs, and the module's own tensors, which become constants when they are read."""
        examples = {node.name: node.meta["val"] for node in self.program.graph.nodes if node.op == "placeholder"}
        whole = 0
        for spec in self.program.graph_signature.input_specs:
            name = spec.arg.name
            if spec.kind is InputKind.USER_INPUT:
                if not isinstance(examples.get(name), torch.Tensor):
                    raise Unsupported(f"input {name} is {examples.get(name)!r}: expected a tensor")
                self.made[name] = self.builder.input(name, examples[name].shape)
                continue
            tensor = self.program.constants.get(spec.target)
            self.waiting[name] = self.program.state_dict[spec.target] if tensor is None else tensor
            whole += self.waiting[name].nbytes
        if whole > MOST_BYTES:
            raise ValueError(f"weights of {whole} bytes: expected at most {MOST_BYTES}")

    def _operation(self, node: torch.fx.Node) -> Any:
        """The value, or values, of one operation."""
        arguments = [self._given(one) for one in node.args]
        if node.target is python.getitem:
            return arguments[0][arguments[1]] if isinstance(arguments[0], tuple) else arguments[0]
        place = _place(node)
        rule = TABLE.get(str(node.target))
        if rule is None:
            raise Unsupported(f"{place}: {node.target} has no kernels here; there are those of {', '.join(sorted(TABLE))}")
        self.builder.origin = f"{place}#{node.name}"
        options = {key: self._given(one) for key, one in node.kwargs.items() if key not in ("memory_format", "pin_memory")}
        try:
            return rule(self.builder, *arguments, **options)
        except (ValueError, TypeError) as error:
            raise Unsupported(f"{place}: {node.target}: {error}") from error

    def _given(self, argument: Any) -> Any:
        """An argument with names in place of nodes."""
        if isinstance(argument, torch.fx.Node):
            if argument.name in self.waiting:
                self.made[argument.name] = self._constant(argument.name, self.waiting.pop(argument.name))
            return self.made[argument.name]
        return [self._given(one) for one in argument] if isinstance(argument, list | tuple) else argument

    def _constant(self, name: str, tensor: torch.Tensor) -> str:
        if not tensor.is_floating_point() and tensor.dtype != torch.bool:
            raise Unsupported(f"{name} is a tensor of {tensor.dtype}: expected float32")
        array: np.ndarray = tensor.detach().to(torch.float32).contiguous().numpy()
        return self.builder.constant(name, array)


def _place(node: torch.fx.Node) -> str:
    """Where in the module an operation is: the path of the innermost submodule."""
    stack = node.meta.get("nn_module_stack") or {}
    path = [where for where, _ in stack.values()]
    return path[-1] if path and path[-1] else "the module"
