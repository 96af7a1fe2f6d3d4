"""From a torch module to one function: every piece of its plan is a task, searched once and found again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agents.optimize import Result, optimize
from gensor_gym import hardware
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.compile import compile_c
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.folding import folded
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan, cut_all
from gensor_gym.networks.steps import Step
from gensor_gym.operators.types import Operator


@dataclass(frozen=True, eq=False)
class CompiledNetwork:
    """A network with a kernel for each piece of its plan."""

    plan: Plan
    hardware: Hardware
    results: tuple[Result, ...]
    """What was found for each step; equal computations share one."""
    kernels: tuple[Kernel, ...]
    """Of each step."""
    arena: str = "hot"
    """How values between kernels are placed (`networks.arena.MODES`)."""

    @cached_property
    def function(self) -> NetworkFunction:
        """The network in this process, loaded when it is first asked for."""
        return NetworkFunction(self.plan, self.kernels, self.hardware.units, self.arena)

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """The outputs for inputs of NumPy, torch or whatever speaks DLPack; see `codegen.runtime.c.NativeFunction`."""
        return self.function(*inputs, out=out)

    def __repr__(self) -> str:
        distinct = len({id(result) for result in self.results})
        return f"<{self.plan.network} on {self.hardware.name}: {len(self.kernels)} kernels, {distinct} distinct>"


def compile_network(
    network: Network, machine: Hardware | str = "host", trials: int = 3, seconds: float = float("inf"), seed: int = 0,
    plan: Callable[[Network], Plan] = cut_all, arena: str = "hot", on_task: Callable[[int, int, str], None] | None = None,
    **options: Any,
) -> CompiledNetwork:  # fmt: skip
    """Find a kernel for every piece of a network's plan.

    Each distinct computation is searched with `trials` measured programs, unless a search of it is remembered
    (`optimize(.., reuse=True)`); after `seconds` those that are left take the program that the model ranks first. `on_task` is
    told of each search before it begins: (number, of how many, computation). `options` are `optimize`'s.

    ValueError for a network that has no legal plan; RuntimeError where no program of a piece ran well.
    """
    chosen, hw = plan(folded(network)), hardware.get(machine)
    distinct = list(dict.fromkeys(step.computation for step in chosen.steps))
    end, found = time.monotonic() + seconds, {}
    for number, computation in enumerate(distinct):
        if on_task is not None:
            on_task(number, len(distinct), str(computation))
        budget = trials if time.monotonic() < end else 1
        found[computation] = optimize(computation, hw, trials=budget, seed=seed, **{"reuse": True, **options})
    results = tuple(found[step.computation] for step in chosen.steps)
    kernels = tuple(_kernel(chosen, step, result, hw) for step, result in zip(chosen.steps, results, strict=True))
    return CompiledNetwork(chosen, hw, results, kernels, arena)


def _kernel(plan: Plan, step: Step, result: Result, hw: Hardware) -> Kernel:
    """With packed weights where the program packs them and they are constant."""
    if isinstance(step.computation, Operator) and len(step.computation.reads) == 2 and step.reads[1] in plan.network.constants:
        try:
            kernel = generate(step.computation, result.schedule, hw, prepacked=True)
        except ValueError:
            return result.kernel
        compile_c(kernel)
        return kernel
    return result.kernel


def compile_module(module: Any, example_inputs: Sequence[Any], **options: Any) -> CompiledNetwork:
    """A torch module as one function; see `compile_network` for `options`, and `frontends.torch_export` for what is covered."""
    from gensor_gym.frontends.torch_export import from_torch

    return compile_network(from_torch(module, example_inputs), **options)
