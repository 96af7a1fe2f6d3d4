"""Kernels for plans of tests."""

from __future__ import annotations

import numpy as np

from gensor_gym import hardware
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.families import graph_of
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.networks.plan import Plan
from gensor_gym.operators.types import Operator


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
