"""Kernels for plans of tests, and their functions beside torch in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from gensor_gym import hardware
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.families import graph_of
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.loops import task_rows
from gensor_gym.networks.plan import Plan
from gensor_gym.networks.tasks import first_by_rows
from gensor_gym.operators.types import Operator


def kernels_of(plan: Plan, seed: int, walk: int = 6) -> list[Kernel]:
    """A kernel of a random legal schedule for each step, near it for steps in one loop; packed weights where there are such."""
    rng, hw = np.random.default_rng(seed), hardware.get("host")
    found = []
    for step, rows in zip(plan.steps, task_rows(plan.pieces), strict=True):
        graph = graph_of(step.computation, hw)
        schedule = graph.random_schedule(rng, walk) if walk else graph.initial()
        schedule = first_by_rows(step.computation, schedule, rows, hw) if rows else schedule
        found.append(generate(step.computation, schedule, hw))
    return found


def packed_kernels(plan: Plan) -> list[Kernel]:
    """A kernel for each step; of products by constants with packed weights, and with scratch beside them."""
    rng, hw = np.random.default_rng(0), hardware.get("host")
    found = []
    for step in plan.steps:
        op, graph = step.computation, graph_of(step.computation, hw)
        if not isinstance(op, Operator) or not op.frozen:
            found.append(generate(op, graph.initial(), hw))
            continue
        draws = (graph.random_schedule(rng) for _ in range(1000))
        found.append(generate(op, next(one for one in draws if one.knob("pack_a") and one.knob("pack_b")), hw))
    return found


def in_float64(module: nn.Module, inputs: Sequence[torch.Tensor]) -> Any:
    """What torch makes of inputs in float64; the module is of float32 before and after."""
    with torch.no_grad():
        found = module.double()(*(one.double() if one.is_floating_point() else one for one in inputs))
    module.float()
    return found


def check(
    function: NetworkFunction, module: nn.Module, inputs: Sequence[torch.Tensor], rtol: float = 2e-4, atol: float = 2e-5
) -> None:
    """Called with tensors and then with arrays, the function gives what torch does in float64."""
    expected = in_float64(module, inputs).numpy()
    for given in (inputs, [one.numpy() for one in inputs]):
        np.testing.assert_allclose(function(*given), expected, rtol=rtol, atol=atol)
