"""Kernels of a network with a clock between them compute what the network does; times and floors are what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from experiments.benches.networks.profile import by_kernel, floors, name_of, rows_of
from gensor_gym import hardware
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.families import graph_of
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.plan import Plan, cut_all
from gensor_gym.networks.stamped import StampedNetwork

HERE = hardware.get("zen5_1c")


class Small(nn.Module):
    """Two outputs, a value that is read twice, equal products."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(48, 48), nn.Linear(48, 48)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a = torch.relu(self.first(x))
        return torch.softmax(torch.relu(self.second(a)), -1), a * y


def made(mode: str) -> tuple[Plan, NetworkFunction, StampedNetwork, list[np.ndarray]]:
    """A network of initial schedules."""
    torch.manual_seed(0)
    inputs = [torch.randn(24, 48) for _ in range(2)]
    plan = cut_all(folded(from_torch(Small().eval(), inputs)))
    kernels: list[Any] = [generate(step.computation, graph_of(step.computation, HERE).initial(), HERE) for step in plan.steps]
    function, given = NetworkFunction(plan, kernels, 1, mode), [one.numpy() for one in inputs]
    return plan, function, StampedNetwork(plan, kernels, function, given, 1), given


@pytest.mark.parametrize("mode", ["hot", "none"])
def test_in_order_and_several_times_it_computes_what_the_network_does(mode: str) -> None:
    plan, function, stamped, given = made(mode)
    expected = function(*given)
    for run in (lambda: stamped.in_context(2), lambda: stamped.isolated(1e-5)):
        for output in stamped.outputs:
            output.fill(np.nan)
        run()
        for output, right in zip(stamped.outputs, expected, strict=True):
            np.testing.assert_array_equal(output, right)
    assert stamped.in_context(2).shape == (2, len(plan.steps))
    assert (stamped.seconds([0, 1, 1]) > 0).all() and stamped.seconds([]).shape == (0,)
    with pytest.raises(ValueError, match=f"expected numbers of kernels, 0 to {len(plan.steps) - 1}"):
        stamped.seconds([len(plan.steps)])


def test_times_add_up_over_calls() -> None:
    """Ten times as many calls of a kernel take about ten times as long."""
    _, _, stamped, _ = made("hot")
    stamped.seconds([0] * 2000)
    many, one = stamped.seconds([0] * 2000), stamped.seconds([0] * 200)
    assert 4 < many.sum() / one.sum() < 25


def test_rows_and_floors() -> None:
    plan, _, stamped, _ = made("hot")
    passes = np.array([[2e-6, 4e-6, 1e-6, 1e-6], [2e-6, 4e-6, 1e-6, 3e-6], [2e-6, 4e-6, 1e-6, 1e-6]])
    assert len(plan.steps) == 4
    rows = rows_of(plan, HERE, passes, [1e-6] * 4)
    assert [row["share"] for row in rows] == pytest.approx([0.25, 0.5, 0.125, 0.125])
    assert [row["in_context_s"]["median"] for row in rows] == pytest.approx([2e-6, 4e-6, 1e-6, 1e-6])
    step = plan.steps[0]
    found = floors(plan.network, step, HERE)
    assert found["flops_floor_s"] == pytest.approx(2 * 24 * 48 * 48 / HERE.peak_of("float32"), rel=0.1)
    assert found["bytes_floor_s"] >= 48 * 48 * 4 / HERE.level("l1").bandwidth
    assert name_of(plan.network, plan.pieces[0].nodes).endswith("linear +1")
    together = by_kernel(rows)
    assert sum(row["times"] for row in together) == 4 and together[0]["times"] == 2
    assert together[0]["in_context_s"] == pytest.approx(6e-6) and together[0]["share"] == pytest.approx(0.75)
