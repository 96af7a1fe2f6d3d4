"""Converts a torch module to a network by `torch.export`. Operations that `covered.TABLE` lacks are decomposed first."""

from __future__ import annotations

import dataclasses
import itertools
import operator as python
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, TensorArgument
from torch.fx.node import map_arg

from gensor_gym.dataflow.expressions import INT8
from gensor_gym.dataflow.nodes import DTYPES, HALVES
from gensor_gym.frontends.aten import quantized, transforms  # and all other rules, which fill the table
from gensor_gym.frontends.builder import Builder
from gensor_gym.frontends.casts import CAST, casts_of, name_of
from gensor_gym.frontends.constants import as_array, constant_output
from gensor_gym.frontends.covered import TABLE, rule_of
from gensor_gym.frontends.decomposed import DECOMPOSITIONS, in_place_of_torchs
from gensor_gym.frontends.forms import FIXED, Examples, arguments_of, ends_of, fixed_or, form_of, names_of
from gensor_gym.frontends.objects import Maker, with_opened_results
from gensor_gym.frontends.quick import quick
from gensor_gym.frontends.unsupported import Unsupported, refusing
from gensor_gym.networks.forms import Form, changed
from gensor_gym.networks.network import Network
from gensor_gym.registry import near

MOST_NODES, MOST_BYTES = 1 << 16, 8 << 30
"""Largest number of operations of a program, and of bytes of its weights."""
_ASSERTIONS = {"aten._assert_tensor_metadata.default", "aten._assert_async.msg"}
"""Operations that only assert, for which nothing is decomposed. Assertions on shapes hold; those on numbers are not checked."""
_MORE = [torch.ops.aten.addmv.default, torch.ops.aten.dist.default, torch.ops.aten.ldexp.Tensor]
"""Operations that torch decomposes only if the caller lists them."""
_EMPTY = ("aten.empty", "aten.new_empty")
"""Prefixes of ATen's operations whose results are uninitialised memory."""
_LAYOUT = ("memory_format", "pin_memory", "layout", "device")
"""Options of operations about memory, which rules do not accept. They are left out."""
_TYPES = {getattr(torch, name): name for name in DTYPES if name != INT8}


def from_torch(module: torch.nn.Module | ExportedProgram, example_inputs: Examples, name: str = "") -> Network:
    """Convert a torch module in evaluation mode to a network, for inputs with the shapes of `example_inputs`.

    `name` defaults to the module's class.

    Inputs are float32, bfloat16 or float16 tensors, and ids and masks of int64, int32 or bool, in tuples, lists and dicts
    (`Network.arguments`). Numbers, texts and None among them are equal at every call. Values of 16 bits are rounded where a
    kernel stores them; kernels compute in float32. Integers are exact, with wrap-around. Assertions on numbers are not checked.
    Dynamic extents of an exported program take the values of the examples.

    Outputs have the module's types, if necessary by a cast at the end (`Network.types`). They are in tuples, lists, dicts and
    objects of other classes, with numbers and None among them (`Network.form`).

    A dict of `example_inputs` has keyword arguments, which are the network's inputs in the dict's order. Calls name them, or pass
    them in the module's order. Arguments with a plain default may be omitted.

    Raises:
        Unsupported: for operations or types of tensors that are not covered, with their position in the module, and for programs
            beyond the limits.
        ValueError: if it is not a module, if it is in training mode, or if the inputs are not a list, tuple or dict.
    """
    if isinstance(module, ExportedProgram):
        module = module.module()
    if not isinstance(module, torch.nn.Module) or not isinstance(example_inputs, list | tuple | Mapping):
        wanted = "a module and its example inputs, a tuple or a dict by name"
        raise ValueError(f"{_said(module)} and {_said(example_inputs)}: expected {wanted}")
    if module.training and not isinstance(module, torch.fx.GraphModule):  # an exported program keeps its mode
        raise ValueError(f"{type(module).__name__} is in training mode: expected module.eval()")
    for top, whole in example_inputs.items() if isinstance(example_inputs, Mapping) else enumerate(example_inputs):
        for place, given in ends_of(whole, str(top)):
            _check_example(place, given)
    places = 0 if isinstance(example_inputs, Mapping) else len(example_inputs)
    with refusing():
        return Reader(exported(module, example_inputs), module.forward, places).network(name or type(module).__name__)


def _check_example(place: str, given: Any) -> None:
    """Raise Unsupported unless an example input is a supported tensor or a constant. `place` is its position."""
    if isinstance(given, FIXED):
        return
    if not isinstance(given, torch.Tensor) or given.dtype not in _TYPES or given.device.type != "cpu":
        others = ", ".join(name for name in _TYPES.values() if name != "float32")
        wanted = f"a float32 tensor on the CPU, one of {others}, a number, or these in tuples, lists and dicts"
        raise Unsupported(f"example input {place} is {_said(given)}: expected {wanted}")


def exported(module: torch.nn.Module, example_inputs: Examples, dynamic_shapes: Any = None) -> ExportedProgram:
    """Export a module by torch; `dynamic_shapes` are torch's. Unsupported, with torch's reason, if that fails."""
    seen: set[int] = set()

    def own(given: Any) -> Any:
        """Copy a tensor that is passed a second time, because torch would read only one of the two inputs."""
        again = id(given) in seen and isinstance(given, torch.Tensor)
        seen.add(id(given))
        return given.clone() if again else given

    given = dict(example_inputs) if isinstance(example_inputs, Mapping) else tuple(example_inputs)
    examples = changed(given, own)
    places, keywords = ((), examples) if isinstance(examples, dict) else (examples, {})
    try:
        with torch.no_grad(), quick(), with_opened_results(module):
            program = torch.export.export(module, places, keywords, dynamic_shapes=dynamic_shapes)
            if _is_covered(program):
                return program  # because decomposition takes longer than export
            table = torch.export.default_decompositions()
            table.update(get_decompositions(_MORE) | DECOMPOSITIONS)  # type: ignore[attr-defined]
            for target in [target for target in table if str(target) in TABLE]:
                del table[target]
            with in_place_of_torchs():
                return program.run_decompositions(table)
    except Exception as error:  # of many classes, which torch does not document
        said = next(iter(str(error).strip().splitlines()), "")
        raise Unsupported(f"{type(module).__name__}: torch.export: {type(error).__name__}: {said}") from error


def _is_covered(program: ExportedProgram) -> bool:
    """Return whether no operation mutates its arguments, and each has a rule or reads only constant tensors."""
    of_call = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT}
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        schema = getattr(node.target, "_schema", None)
        if isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool):
            continue  # a number of shapes
        if (schema is None and node.target is not python.getitem) or (schema is not None and schema.is_mutable):
            return False
        if any(one.name in of_call for one in node.all_input_nodes):
            if schema is not None and str(node.target) not in TABLE and str(node.target) not in _ASSERTIONS:
                return False
            of_call.add(node.name)
    return True


def _said(given: Any) -> str:
    return f"{given.dtype} on {given.device}" if isinstance(given, torch.Tensor) else f"a {type(given).__name__}"


class Reader:
    """Reads an exported program as a network."""

    def __init__(self, program: ExportedProgram, forward: Callable[..., Any], places: int) -> None:
        """Prepare to read an exported `program`.

        `forward` is the module's function; its first `places` arguments are positional.
        """
        self.program, self.forward, self.places, self.builder = program, forward, places, Builder()
        self.made: dict[str, Any] = {}
        """Name of a node of torch's graph that was read -> the name of its value, its constant tensor, or a list of these."""
        self.casts = casts_of(program.graph, (*_TYPES.values(), "complex64"))
        """Name of a node of torch's graph -> its casts to data types that kernels do not compute (`casts_of`)."""
        self.numbers: dict[str, torch.fx.Node] = {}
        """Name of a node that dequantises a constant -> that node."""
        self.builder.integer = quantized.product
        self.constants: dict[str, Any] = {}
        """Name of a node of torch's graph with a constant tensor -> the name of the builder's constant, or a pair of names."""
        nodes = list(program.graph.nodes)
        if len(nodes) > MOST_NODES:
            raise Unsupported(f"a program of {len(nodes)} operations: expected at most {MOST_NODES}")

    def network(self, name: str) -> Network:
        """Read the program and return its network (`from_torch`)."""
        self._check_outputs()
        self._parameters()
        for node in _read(self.program.graph):
            self.made[node.name] = self._operation(node)
        (results,) = next(node for node in self.program.graph.nodes if node.op == "output").args
        self.builder.origin, self.builder.is_whole, self.builder.half = "the outputs", False, ""
        if not (there := [result for result in results if not isinstance(result, FIXED)]):
            raise Unsupported("the module returns no tensor: expected one or more")
        returns = [self._output(place, result) for place, result in enumerate(there)]
        made = self.builder.network(name, returns)
        wanted = dict(enumerate(map(self._types, there)))
        types = {place: kinds for place, kinds in wanted.items() if kinds != (made.outputs[place].dtype,)}
        return dataclasses.replace(made, form=self._form(results), types=types, arguments=self._arguments())

    def _arguments(self) -> dict[str, Form]:
        count, given = itertools.count(), [spec.arg for spec in self._inputs()]
        ends = (fixed_or(count, getattr(one, "value", None), not isinstance(one, TensorArgument)) for one in given)
        with refusing("the module takes "):
            places, keywords = form_of(self.program.call_spec.in_spec, ends)
        names = names_of(self.forward, self.places)
        return arguments_of(self.forward, {**dict(zip(names, places, strict=True)), **keywords})

    def _inputs(self) -> list[InputSpec]:
        return [spec for spec in self.program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]

    def _check_outputs(self) -> None:
        """Raise Unsupported if the module changes its own tensors or its inputs."""
        for spec in self.program.graph_signature.output_specs:
            if spec.kind is not OutputKind.USER_OUTPUT:
                what = spec.target or "what is outside it (torch.linalg raises errors)"
                raise Unsupported(f"the module changes {what}: expected one that only reads")

    def _form(self, results: Sequence[Any]) -> Any:
        count, spec = itertools.count(), self.program.call_spec.out_spec
        if spec is None or spec.is_leaf():
            return None
        ends = (fixed_or(count, result, isinstance(result, FIXED)) for result in results)
        form = form_of(spec, ends, Maker.of)
        return None if len(results) > 1 and type(form) is tuple and form == tuple(range(len(results))) else form

    def _types(self, result: torch.fx.Node) -> tuple[str, ...]:
        """Return the data types to which an output is cast, in order; its own type if it has no casts."""
        return self.casts.get(result.name) or (name_of(result.meta["val"].dtype),)

    def _output(self, place: int, result: Any) -> str:
        value = result.meta.get("val") if isinstance(result, torch.fx.Node) else result
        if not isinstance(value, torch.Tensor) or value.is_complex() and result.name not in self.casts:
            raise Unsupported(f"output {place} is {_said(value)}: expected a tensor of real numbers")
        if isinstance(result, torch.fx.Node) and str(result.target) in quantized.RULES and value.dtype != torch.float32:
            raise Unsupported(f"output {place} is of {value.dtype}: expected what dequantize_per_tensor makes of it")
        made = self._made(result, f"output {place}") if isinstance(result, torch.fx.Node) else result
        if not isinstance(made, str):
            made = self.builder.constant(result.name, constant_output(made, place))
        if value.dtype != torch.float32 and self.builder.given_as(made) in ("int32", "int64"):
            self.builder.is_whole = True
            made = self.builder.copy(made)
            self.builder.is_whole = False
        return made

    def _parameters(self) -> None:
        """Add the network's inputs. Keep the module's own tensors, which become constants when an operation reads them."""
        examples = {node.name: node.meta.get("val") for node in self.program.graph.nodes if node.op == "placeholder"}
        whole = 0
        for spec in self.program.graph_signature.input_specs:
            name = spec.arg.name
            if spec.kind is InputKind.USER_INPUT:
                if isinstance(spec.arg, TensorArgument):
                    self._input(name, examples.get(name))
                continue
            tensor = self.program.constants.get(str(spec.target))
            self.made[name] = self.program.state_dict.get(str(spec.target)) if tensor is None else tensor
            if not isinstance(self.made[name], torch.Tensor):
                raise Unsupported(f"{spec.target} is a {type(self.made[name]).__name__}: expected a tensor")
            whole += self.made[name].nbytes
        if whole > MOST_BYTES:
            raise Unsupported(f"weights of {whole} bytes: expected at most {MOST_BYTES}")

    def _input(self, name: str, example: Any) -> None:
        if not isinstance(example, torch.Tensor) or example.dtype not in _TYPES:
            raise Unsupported(f"input {name} is {example!r}: expected a tensor")
        if any(not isinstance(extent, int) for extent in example.shape):
            raise Unsupported(f"input {name} has shape {list(example.shape)}: expected extents that are the same at every call")
        self.made[name] = self.builder.input(name, example.shape, _TYPES[example.dtype])

    def _operation(self, node: torch.fx.Node) -> Any:
        """Convert one operation of torch's graph by its rule. Return the name or names of the results.

        If the operation reads only constants, return the tensor that torch computes.
        """
        place = _place(node)
        read = [self._made(one, place) for one in node.all_input_nodes]
        if node.target is python.getitem:
            return _item(read[0], node.args[1], place)
        try:
            made = _tensors_of(node.meta.get("val"))
            if made and all(0 in [extent for extent in one.shape if isinstance(extent, int)] for one in made):
                # A tensor without elements is equal at every call. Extents that depend on numbers are not of class int.
                found = [torch.empty(one.shape, dtype=one.dtype) for one in made]
                return found if isinstance(node.meta["val"], list | tuple) else found[0]
            if not any(_is_of_call(one) for one in read):
                self.casts.pop(node.name, None)
                self.numbers.update({node.name: node} if str(node.target).startswith(quantized.DEQUANTIZE) else {})
                return _computed(node, *map_arg((node.args, node.kwargs), lambda one: self.made[one.name]), MOST_BYTES)
            is_complex = any(one.is_complex() for at in (node, *node.all_input_nodes) for one in _tensors_of(at.meta.get("val")))
            rule = rule_of(str(node.target), is_complex)
            if rule is None and torch.Tag.dynamic_output_shape in getattr(node.target, "tags", ()):
                raise ValueError("makes as many elements as numbers say: expected a shape that is the same at every call")
            if rule is None:
                raise ValueError("has no kernels here" + (" for complex numbers" * is_complex or near(str(node.target), TABLE)))
            self._begin(node, place)
            if str(node.target) == CAST and node.name in self.casts:
                return read[0]
            arguments, options = map_arg((node.args, node.kwargs), lambda one: self._named(one.name))
            found = rule(self.builder, *arguments, **{key: one for key, one in options.items() if key not in _LAYOUT})
            found = self._halved(found, made)
            is_int32 = self.builder.is_whole and {one.dtype for one in made} == {torch.int32}
            return self.builder.wrapped(found) if is_int32 and isinstance(found, str) else found
        except Exception as error:  # arguments that a rule does not expect may raise any error
            said = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
            raise Unsupported(f"{place}: {node.target}: {said}") from error

    def _halved(self, found: Any, made: Sequence[torch.Tensor]) -> Any:
        several = list(found) if isinstance(found, list | tuple) else [found]
        if not any(name_of(one.dtype) in HALVES for one in made) or len(several) > len(made):
            return found
        for place, (name, one) in enumerate(zip(several, made, strict=False)):
            if isinstance(name, str) and name_of(one.dtype) in HALVES:
                several[place] = self.builder.halved(name, name_of(one.dtype))
        return several if isinstance(found, list | tuple) else several[0]

    def _made(self, node: torch.fx.Node, place: str) -> Any:
        """Return the name or tensor of a node that an operation reads. Unsupported if the node has not been converted."""
        if (made := self.made.get(node.name)) is None:
            what = "a graph, as of torch.cond," if node.op == "get_attr" else f"({node.target})"
            raise Unsupported(f"{place}: {node.name} {what} is read: expected what has kernels here")
        return made

    def _begin(self, node: torch.fx.Node, place: str) -> None:
        """Set the builder's attributes for one operation. ValueError if it reads or computes tensors of unsupported types."""
        for read in node.all_input_nodes:
            is_number = str(read.target) in quantized.RULES and name_of(read.meta["val"].dtype) != "float32"
            if is_number and not str(node.target).startswith(quantized.DEQUANTIZE):
                raise ValueError("reads quantised numbers: expected dequantize_per_tensor before all other operations")
        for one in _tensors_of(node.meta.get("val")):
            computed = one.dtype in _TYPES or one.dtype == torch.complex64
            if not (computed or node.name in self.casts or str(node.target) in quantized.RULES):
                raise ValueError(f"makes a tensor of {one.dtype}: expected {', '.join(_TYPES.values())}")
        for read in node.all_input_nodes:
            if self.casts.get(read.name) and node.name not in self.casts:
                said = ", ".join(self.casts[read.name])
                raise ValueError(f"reads what is cast to {said}: expected an output, or {', '.join(_TYPES.values())}")
        self.builder.origin = f"{place}#{node.name}"
        types = {one.name: _tensors_of(one.meta.get("val")) for one in node.all_input_nodes}
        types_read = {str(self._named(name)): name_of(given[0].dtype) for name, given in types.items() if len(given) == 1}
        self.builder.reads = {name: "float32" if kind in HALVES else kind for name, kind in types_read.items()}
        all_types = {*(name_of(one.dtype) for one in _tensors_of(node.meta.get("val"))), *types_read.values()}
        floats = all_types & {"float32", "complex64", *HALVES}
        self.builder.half = next(iter(floats)) if len(floats) == 1 and floats <= set(HALVES) else ""
        self.builder.is_whole = bool({"int32", "int64"} & all_types) and not floats

    def _named(self, name: str) -> Any:
        """Return the name of a node's value in the builder, or a number for a constant without axes.

        A constant tensor is added to the builder at its first use.
        """
        if not isinstance(made := self.made[name], torch.Tensor):
            return made
        if made.is_complex() and name not in self.constants:
            self.constants[name] = transforms.constant(self.builder, name, made.resolve_conj().numpy())
        if name not in self.constants:
            array = as_array(made)
            if isinstance(array, int | float):
                return array
            kind = name_of(made.dtype)
            self.constants[name] = self.builder.constant(name, array, kind if kind in HALVES else "")
            if (made_of := self.numbers.get(name)) is not None:
                given: Any = map_arg(made_of.args, lambda one: self.made[one.name])
                quantized.constant(self.builder, self.constants[name], given[0], str(made_of.target), given[1:])
        return self.constants[name]


def _read(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Return the operations that the outputs depend on: no assertions on numbers, no random numbers that nothing reads."""
    found: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in found:
            found.update(node.all_input_nodes)
    return [node for node in graph.nodes if node.op == "call_function" and node in found]


def _item(made: Any, number: Any, place: str) -> Any:
    if not isinstance(made, tuple | list):
        return made
    if number >= len(made):
        raise Unsupported(f"{place}: result {number} of an operation: expected one of its first {len(made)}")
    return made[number]


def _is_of_call(made: Any) -> bool:
    """Return whether a result of `_operation`, or a part of it, depends on the network's inputs."""
    return any(map(_is_of_call, made)) if isinstance(made, tuple | list) else isinstance(made, str)


def _place(node: torch.fx.Node) -> str:
    """Return the position of an operation in the module: the path of the innermost submodule that contains it."""
    stack = node.meta.get("nn_module_stack") or {}
    path = [where for where, _ in stack.values()]
    return path[-1] if path and path[-1] else "the module"


def _computed(node: torch.fx.Node, arguments: Sequence[Any], options: Mapping[str, Any], most: int) -> Any:
    """Compute an operation on constant tensors by torch. ValueError for random numbers, or more than `most` bytes."""
    assert not isinstance(node.target, str)
    if _is_random(node.target, arguments, options):
        raise ValueError("random numbers: expected what is the same at every call")
    if (size := sum(one.nbytes for one in _tensors_of(node.meta.get("val")))) > most:
        raise ValueError(f"a constant of {size} bytes: expected at most {most}")
    with torch.no_grad():
        made = node.target(*arguments, **options)
    return made.zero_() if str(node.target).startswith(_EMPTY) else made  # uninitialised memory differs from call to call


def _is_random(target: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> bool:
    """Return whether an operation draws random numbers. Dropout with probability 0 draws none."""
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    named = {**dict(zip((one.name for one in target._schema.arguments), arguments, strict=False)), **options}
    if target is torch.ops.aten.scaled_dot_product_attention.default:
        return bool(named.get("dropout_p"))
    return bool(target is not torch.ops.aten.dropout.default or (named["train"] and named["p"]))


def _tensors_of(value: Any) -> list[torch.Tensor]:
    return [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, torch.Tensor)]
