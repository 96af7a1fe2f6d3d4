"""Recurrent networks: steps share kernels, and each reads its part of what was computed for all of them where that lies."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from gensor_gym.dataflow.nodes import Slice
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.fine import fine
from gensor_gym.networks.plan import Plan

KINDS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(6, 4, num_layers=2, batch_first=True),
    "gru": lambda: nn.GRU(6, 4, bidirectional=True),
    "tanh": lambda: nn.RNN(6, 4),
}


def plan_for(kind: str, steps: int) -> Plan:
    module = KINDS[kind]().eval()
    shape = (3, steps, 6) if kind == "lstm" else (steps, 3, 6)
    return fine(folded(from_torch(module, (torch.randn(shape),))))


@pytest.mark.parametrize("kind", KINDS)
def test_more_steps_take_no_more_kernels_of_their_own(kind: str) -> None:
    """But for the products of all steps' inputs and the copies of outputs, whose sizes are others."""
    short, long = ({step.computation for step in plan_for(kind, steps).steps} for steps in (5, 9))
    assert len(short) == len(long) and len(short & long) >= len(short) - 4


def test_a_step_of_the_input_is_no_kernels_work() -> None:
    plan = plan_for("tanh", 5)
    network = plan.network
    steps = {name: place for name, (_, place) in network.cuts.items()}
    assert sorted(steps.values()) == [4 * 3 * 4 * step for step in range(5)]
    assert all(isinstance(network.nodes[name], Slice) and network.is_free(name) for name in steps)
    assert len(plan.pieces) == 1 + 1 + 4 * 2, "of all steps a product, of each a product and the function; one state is known"
