"""Convolutions of networks by Winograd's algorithm: where they are chosen, that results are right, and how to do without."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from agents.modules import compile_module
from gensor_gym import hardware, operators
from gensor_gym.dataflow.bounds import exact
from gensor_gym.dataflow.evaluate import evaluate_node
from gensor_gym.dataflow.nodes import Contract
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.rules import PLANS, plan_of
from gensor_gym.networks.network import Network
from gensor_gym.networks.orders.machines import by_winograd, convolution_seconds
from gensor_gym.networks.orders.rewrite import ordered
from gensor_gym.operators.text import with_arguments
from gensor_gym.operators.types import Operator
from tests.networks.test_orders import conv
from tests.support.c_cases import inputs_of, machine
from tests.support.winograd_cases import winograd as by_tiles

PLAIN, LAST = machine(), {"image": "nhwc", "result": "nhwc"}


class Windows(nn.Module):
    """Convolutions that Winograd's algorithm computes, and others: with a stride, with other windows, of many channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.one, self.two = conv(3, 32), conv(32, 32), conv(32, 64)
        self.strided, self.small, self.last = conv(64, 64, stride=2), conv(64, 32, 1), nn.Linear(32, 7)

    def forward(self, x: Any) -> Any:
        """Apply the network to images."""
        y = torch.relu(self.first(x))
        z = torch.relu(self.two(torch.relu(self.one(y)) + y))
        return self.last(torch.relu(self.small(self.strided(z))).mean((2, 3)))


def given() -> tuple[nn.Module, Any]:
    """The network, and images."""
    torch.manual_seed(0)
    return Windows().eval(), torch.randn(2, 3, 30, 31)


def convolutions(network: Network) -> list[Operator]:
    """All convolutions of a network, in order."""
    return [node.operator for _, node in network.graph.nodes if isinstance(node, Contract) and node.operator.name == "conv2d"]


def test_it_is_chosen_where_windows_and_orders_allow_it() -> None:
    module, x = given()
    old = folded(from_torch(module, (x,)))
    assert [op.winograd for op in convolutions(ordered(old, PLAIN))] == [0, 2, 2, 0, 0]
    assert not any(op.winograd for op in convolutions(ordered(old, PLAIN, winograd=False)))
    assert not any(op.winograd for op in convolutions(ordered(old, hardware.get("h100"))))


def test_weights_that_are_inputs_are_not_transformed_in_every_call() -> None:
    class Given(nn.Module):
        def forward(self, x: Any, w: Any, v: Any) -> Any:
            return torch.relu(torch.conv2d(torch.relu(torch.conv2d(x, w, padding=1)), v, padding=1)).mean((2, 3))

    old = folded(from_torch(Given().eval(), (torch.randn(1, 32, 30, 30), torch.randn(32, 32, 3, 3), torch.randn(32, 32, 3, 3))))
    assert len(convolutions(old)) == 2 and not any(op.winograd for op in convolutions(ordered(old, PLAIN)))


@pytest.mark.parametrize(("h", "c", "k", "wanted"), [(28, 128, 128, 2), (56, 64, 64, 2), (3, 16, 16, 0)])
def test_the_model_chooses(h: int, c: int, k: int, wanted: int) -> None:
    """For many pixels it is faster. An image of one tile and a half computes too much that is not needed."""
    op = operators.conv2d(n=1, c=c, h=h, w=h, k=k, r=3, s=3, padding=1, **LAST)
    assert by_winograd(op, PLAIN)[0].winograd == wanted and 0.0 < by_winograd(op, PLAIN)[1] <= convolution_seconds(op, PLAIN)
    assert by_winograd(with_arguments(op, image="nchw"), PLAIN)[0].winograd == 0


@pytest.mark.parametrize("lanes", [16, 8])
def test_compiled_networks_are_right(lanes: int) -> None:
    """Within the bounds of float64, and without the algorithm too."""
    module, x = given()
    old = folded(from_torch(module, (x,)))
    (expected,) = old.reference(x.double().numpy())
    for winograd in (True, False):
        compiled = compile_module(
            module, (x,), hardware=machine(lanes), backend="analytic", trials=1, reuse=False, winograd=winograd
        )
        assert any("winograd=2" in kernel.source for kernel in compiled.kernels) == winograd
        with torch.no_grad():
            found = compiled(x).double().numpy()
        assert (np.abs(found - expected.value) <= expected.error).all()


def test_images_too_wide_for_blocks_are_plain_sums() -> None:
    """With channels first, a row of image tiles stays in one block; of 1024 pixels it is too large for an L2 cache of 64 KB."""
    levels = [dataclasses.replace(one, capacity=1 << 16) if one.name == "l2" else one for one in PLAIN.memory]
    hw = dataclasses.replace(PLAIN, memory=tuple(levels))
    op = operators.conv2d(n=1, c=64, h=8, w=1024, k=64, r=3, s=3, padding=1, image="nhwc")
    assert by_winograd(op, hw)[0].winograd == 0 and by_winograd(with_arguments(op, result="nhwc"), hw)[0].winograd == 2


@pytest.mark.parametrize("plan", PLANS)
def test_every_plan_prices_it(plan: str) -> None:
    module, x = given()
    made = plan_of(ordered(folded(from_torch(module, (x,))), PLAIN), plan, PLAIN)
    assert not made.fault and sum(getattr(step.computation, "winograd", 0) for step in made.steps) == 4


def test_the_bound_of_a_network_is_of_its_algorithm() -> None:
    """One huge pixel of one channel: what Winograd's algorithm rounds is beyond the bound of plain sums, and within its own."""
    op = by_tiles(8, 8, 1, 8, "padding=1")
    x, w = inputs_of(op)
    x[0, 4, 4, 0] = 1e6
    kinds = {kind: evaluate_node(Contract(one, ("x", "w")), {"x": exact(x.astype(float)), "w": exact(w.astype(float))})
             for kind, one in (("own", op), ("plain", with_arguments(op, winograd=0)))}  # fmt: skip
    assert np.array_equal(kinds["own"].value, kinds["plain"].value)
    assert (kinds["own"].error >= kinds["plain"].error).all() and (kinds["own"].error > 3 * kinds["plain"].error).any()


def test_the_option_is_checked() -> None:
    module, x = given()
    with pytest.raises(ValueError, match="winograd=1: expected True or False"):
        compile_module(module, (x,), winograd=1)
