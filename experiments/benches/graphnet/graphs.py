"""Graphs in a clone of GraphNet: a random draw, and each graph as a module with weights and inputs drawn from its metadata.

A graph is a folder with `model.py`, a class GraphModule whose arguments are inputs and weights, and with two files of metadata,
which have shape, type, mean and deviation of each argument.
"""

from __future__ import annotations

import ast
import inspect
import math
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from experiments.conformance.cases import tensors_of

SAMPLES, PROGRAM, METADATA = "samples/", "model.py", ("weight_meta.py", "input_meta.py")
Attempt = tuple[float, int, bool]
ATTEMPTS: tuple[Attempt, ...] = ((1.0, 1, True), (0.2, 0, True), (1.0, 1, False), (0.2, 0, False))
"""Ways to draw arguments, in the order in which they are tried.

Each has a factor of the standard deviations; the number in integer tensors without data; and whether a tensor without axes that
is neither parameter nor buffer, such as an epsilon, is a number. (It was one in the network; GraphNet keeps numbers as tensors.)
The last is what GraphNet itself does (`replay_tensor` in graph_net_bench/torch/utils.py). With a fifth of the deviation, hardly
anything of the input is left after many layers, and errors in the first layers would not be seen.
"""
NO_DEVIATION = 0.1
"""Standard deviation of a tensor whose metadata has none, as in GraphNet."""
WIDE = {
    r"\btorch\.(float32|float16|bfloat16|float|half)\b": "torch.float64", r"\.(float|half|bfloat16)\(\)": ".double()",
}  # fmt: skip
"""Pattern in a program -> what replaces it so that the program computes in float64."""
HERE = {
    r"([\"'])cuda(:\d+)?\1": '"cpu"', r"(device\(type=\"cpu\"), index=\d+\)": r"\1)",
    r"\btorch\._C\._functorch\._((add|remove)_batch_dim|vmap_(in|de)crement_nesting)\b": r"torch._functorch.predispatch._\1",
}  # fmt: skip
"""Pattern in a program -> what replaces it so that the program computes on the CPU, and calls what today's torch.vmap calls."""
PLAIN = {r"\b([lL]_self_\w+)\.item\(\)": r"\1"}
"""Pattern in a program -> what replaces it if numbers are numbers."""
_STATE = re.compile(r"_(parameters|buffers)_|Parameter")
_WEIGHT = re.compile(r"_(parameters|buffers|modules)_|^(L_)?self_|Parameter")



class NotBuilt(RuntimeError):
    """Raised if torch does not run a graph here; the message says why."""


@dataclass(frozen=True)
class Metadata:
    """Description of an argument of a graph: the fields that GraphNet keeps of a tensor or a number."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    mean: float | None
    std: float | None
    data: list[Any] | None
    min_val: float | None
    max_val: float | None

    def drawn(self, generator: torch.Generator, spread: float, whole: int) -> Tensor:
        """Draw a tensor. Integers have their data, or lie between their limits, or are `whole`."""
        if self.data is not None:
            return torch.tensor(self.data).reshape(self.shape).to(self.dtype)
        if self.dtype is torch.bool:
            return torch.rand(self.shape, generator=generator) > 0.5
        if not self.dtype.is_floating_point:
            if self.min_val is not None and self.max_val is not None:
                return torch.randint(int(self.min_val), int(self.max_val) + 1, self.shape, generator=generator).to(self.dtype)
            return torch.full(self.shape, whole, dtype=self.dtype)
        deviation = NO_DEVIATION if self.std is None else self.std
        made = torch.randn(self.shape, generator=generator) * (deviation * spread) + (self.mean or 0.0)
        return made.clamp(self.min_val, self.max_val).to(self.dtype) if self._is_limited else made.to(self.dtype)

    @property
    def _is_limited(self) -> bool:
        return self.min_val is not None or self.max_val is not None


@dataclass(frozen=True)
class Graph:
    """A graph of GraphNet: its folder in the repository, its program, and the metadata of its arguments by name."""

    name: str
    program: str
    metadata: Mapping[str, Metadata]

    @property
    def weights(self) -> int:
        """Number of elements of all arguments."""
        return sum(math.prod(one.shape) for one in self.metadata.values())


class Captured(nn.Module):
    """A graph as a module: weights are its own tensors, and inputs are arguments in the graph's order."""

    def __init__(self, graph: nn.Module, given: Mapping[str, Any]) -> None:
        """Take the graph, and its arguments by name: tensors and numbers of its own, None for inputs."""
        super().__init__()
        self.captured, self.given = graph, {}
        for place, (name, value) in enumerate(given.items()):
            self.given[name] = f"own_{place}" if isinstance(value, Tensor) else value
            if isinstance(value, Tensor) and value.is_floating_point():
                self.register_parameter(f"own_{place}", nn.Parameter(value, requires_grad=False))
            elif isinstance(value, Tensor):
                self.register_buffer(f"own_{place}", value)

    def forward(self, *inputs: Tensor) -> Any:
        """Call the graph."""
        left = iter(inputs)
        own = (getattr(self, one) if isinstance(one, str) else one for one in self.given.values())
        return self.captured(*[next(left) if one is None else one for one in own])


class _Measured(TorchFunctionMode):
    """Sets the statistics of batch normalisations to those of the numbers that they read, as training would.

    With statistics from metadata, which has three decimals, the numbers of many random networks vanish layer by layer.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.batch_norm and args[1] is not None and args[0].numel() > args[0].shape[1]:
            x, mean, variance = args[:3]
            axes = [0, *range(2, x.ndim)]
            mean.copy_(x.mean(axes))
            variance.copy_(torch.maximum(x.var(axes, correction=0), 1e-4 * mean.square() + 1e-6))  # rounding is not amplified
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Built:
    """A graph that torch runs."""

    module: nn.Module
    inputs: tuple[Tensor, ...]
    expected: list[Tensor]
    """Outputs of eager torch."""
    exact: list[Tensor] | None
    """Outputs in float64; None if the program does not run in it."""
    depends: bool
    """Whether other inputs give other outputs. Otherwise few errors can be seen."""


def git(repository: Path, *words: str) -> str:
    """Return what git prints about a repository; raise ValueError if it fails."""
    done = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"{repository}: {done.stderr.strip()}: expected a clone of github.com/PaddlePaddle/GraphNet")
    return done.stdout


def names(repository: Path, seed: int) -> list[str]:
    """Return the folders of all graphs in a random order; raise ValueError if there are none."""
    files = git(repository, "ls-tree", "-r", "--name-only", "HEAD", SAMPLES).splitlines()
    found = sorted(one.removesuffix(f"/{PROGRAM}") for one in files if one.endswith(f"/{PROGRAM}"))
    if not found:
        raise ValueError(f"{repository} has no {SAMPLES}../{PROGRAM}: expected a clone of github.com/PaddlePaddle/GraphNet")
    random.Random(seed).shuffle(found)
    return found


def read(repository: Path, name: str) -> Graph:
    """Read a graph. Raise NotBuilt for a missing file, and for metadata of an unknown form."""
    try:
        program, *files = (git(repository, "show", f"HEAD:{name}/{file}") for file in (PROGRAM, *METADATA))
    except ValueError as error:
        raise NotBuilt(str(error)) from error
    return Graph(name, program, dict(one for file in files for one in _described(file)))


def _described(text: str) -> Iterator[tuple[str, Metadata]]:
    """Yield (name, metadata) of each class in a file of metadata, which is parsed and not run."""
    for part in ast.parse(text).body:
        if isinstance(part, ast.ClassDef):
            fields = {one.targets[0].id: _literal(one.value) for one in part.body
                      if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)}  # fmt: skip
            dtype = getattr(torch, str(fields.get("dtype", "torch.float32")).removeprefix("torch."), None)
            if not isinstance(dtype, torch.dtype) or not isinstance(shape := fields.get("shape", []), list | tuple):
                raise NotBuilt(f"{part.name}: {fields}"[:200])
            kept = (fields.get(name) for name in ("mean", "std", "data", "min_val", "max_val"))
            yield str(fields["name"]), Metadata(tuple(shape), dtype, *kept)  # type: ignore[arg-type]


def _literal(node: ast.AST) -> Any:
    """Return the value of a literal or of float("inf") and the like."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "float" and isinstance(node.args[0], ast.Constant):
        return float(node.args[0].value)  # type: ignore[arg-type]
    if isinstance(node, ast.List):
        return [_literal(one) for one in node.elts]
    return -_literal(node.operand) if isinstance(node, ast.UnaryOp) else ast.literal_eval(node)


@torch.no_grad()
def built(graph: Graph, seed: int) -> Built:
    """Build a graph with random weights and inputs, and run it by torch. This runs the program that the repository contains.

    Raise NotBuilt, with torch's reason, if torch does not run it, and if no attempt makes finite numbers.
    """
    said = ""
    for attempt in ATTEMPTS:
        try:
            module, inputs = _module(graph, seed, attempt, HERE)
            with _Measured():
                _outputs(module, inputs)
            expected = _outputs(module, inputs)
            other = _outputs(module, tuple(one.flip(-1) if one.ndim else one for one in inputs))
        except Exception as error:  # of many classes: programs of others
            said = said or f"{type(error).__name__}: {error}"[:300]
            continue
        if not all(bool(one.isfinite().any()) for one in expected if one.is_floating_point() and one.numel()):
            said = said or "no finite numbers"
            continue
        depends = any(map(_differ, expected, other))
        return Built(module, inputs, expected, _exact(graph, seed, attempt, module, inputs), depends)
    raise NotBuilt(said)


def _outputs(module: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    return tensors_of(module(*(one.clone() for one in inputs)))


def _differ(one: Tensor, other: Tensor) -> bool:
    """Return whether numbers differ by more than a thousandth of the largest."""
    wide = one.double().nan_to_num(posinf=0.0, neginf=0.0), other.double().nan_to_num(posinf=0.0, neginf=0.0)
    return bool(one.numel() and (wide[0] - wide[1]).abs().max() > 1e-3 * wide[0].abs().max())


def _exact(
    graph: Graph, seed: int, attempt: Attempt, given: nn.Module, inputs: tuple[Tensor, ...]
) -> list[Tensor] | None:
    try:
        module, _ = _module(graph, seed, attempt, HERE | WIDE)
        module.load_state_dict(given.state_dict())
        return _outputs(module.double(), tuple(one.double() if one.is_floating_point() else one for one in inputs))
    except Exception:  # of many classes: the program demands other types
        return None


def _module(graph: Graph, seed: int, attempt: Attempt, replaced: Mapping[str, str]) -> tuple[nn.Module, tuple[Tensor, ...]]:
    spread, whole, with_numbers = attempt
    made = _program(graph, {**replaced, **(PLAIN if with_numbers else {})})
    generator = torch.Generator().manual_seed(seed)
    own: dict[str, Any] = {}
    inputs: dict[str, Tensor] = {}
    for name, argument in inspect.signature(made.forward).parameters.items():
        if name not in graph.metadata:
            raise NotBuilt(f"no metadata of argument {name}")
        described, kind = graph.metadata[name], f"{name} {argument.annotation}"
        is_input = not _WEIGHT.search(kind)
        if is_input and not described.mean and described.std == 0:
            described = replace(described, std=1.0)  # captured with an image of zeros
        value = described.drawn(generator, spread, whole)
        is_number = "Sym" in kind or (with_numbers and not value.ndim and name.startswith("L_self_") and not _STATE.search(kind))
        own[name] = value.item() if is_number else value
        if not is_number and is_input:
            inputs[name] = value
    inputs = inputs or {name: one for name, one in own.items() if isinstance(one, Tensor)}
    return Captured(made, own | dict.fromkeys(inputs)).eval(), tuple(inputs.values())


def _program(graph: Graph, replaced: Mapping[str, str]) -> nn.Module:
    """Run a graph's program in a module of its own, which Inductor looks for, with some texts replaced; return its graph."""
    program = graph.program
    for pattern, text in replaced.items():
        program = re.sub(pattern, text, program)
    scope = sys.modules[f"{__name__}.program"] = ModuleType(f"{__name__}.program")
    exec(compile(program, graph.name, "exec"), scope.__dict__)  # noqa: S102
    made: nn.Module = scope.GraphModule()
    return made
