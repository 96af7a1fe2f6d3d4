"""Orders of images in networks for CPUs: channels last in float32, and with tile registers (AMX) in bfloat16 and int8."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from agents.networks import compile_module
from gensor_gym import operators
from gensor_gym.dataflow.nodes import Contract, Transpose
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.network import Network
from gensor_gym.networks.orders import rewrite
from gensor_gym.networks.orders.choice import classes_of
from gensor_gym.networks.orders.machines import filled_seconds, layout_seconds, scattering_seconds, with_orders
from gensor_gym.networks.orders.rewrite import ordered
from gensor_gym.operators.images import order_of
from tests.networks import test_orders
from tests.networks.test_networks_quantized import Grid, Network8, layer
from tests.networks.test_orders import Parts, conv, fault
from tests.support.c_cases import machine

PLAIN = machine()
TILES = dataclasses.replace(PLAIN, tensor_peak=(("bfloat16", 3e12), ("int8", 6e12)))


class Residual(nn.Module):
    """The beginning of a ResNet: a pooling, and a block whose residual has another width."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.one, self.two = conv(3, 32, 7, stride=2), conv(32, 32, 1), conv(32, 32)
        self.wide, self.beside, self.last = conv(32, 64, 1), conv(32, 64, 1), nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        """Apply the network to images."""
        y = torch.max_pool2d(torch.relu(self.first(x)), 3, 2, 1)
        z = self.wide(torch.relu(self.two(torch.relu(self.one(y))))) + self.beside(y)
        return self.last(torch.relu(z).mean((2, 3)))


NETWORKS = {"residual": (Residual, torch.bfloat16, 36), "int8": (lambda: Network8(64), torch.float32, 12),
            "parts": (Parts, torch.bfloat16, 36), "float": (Residual, torch.float32, 36),
            "float_parts": (Parts, torch.float32, 36)}  # fmt: skip


def given(name: str) -> tuple[Any, Any]:
    """A network, and images."""
    torch.manual_seed(0)
    make, dtype, size = NETWORKS[name]
    return make().eval().to(dtype), torch.randn(2, 3, size, size).to(dtype)


def network(name: str) -> Network:
    """The graph of a network."""
    module, x = given(name)
    return folded(from_torch(module, (x,)))


def orders(made: Network) -> list[tuple[str, str, str]]:
    """Orders of image, weights and result of all convolutions."""
    found = [node.operator for _, node in made.graph.nodes if isinstance(node, Contract) and node.operator.name == "conv2d"]
    return [(order_of(op, "image"), order_of(op, "weights"), order_of(op, "result")) for op in found]


def possible(made: Network) -> frozenset[str]:
    """All images that can have channels last."""
    return frozenset(one for uses in classes_of(made, TILES) if not uses.is_fixed for one in uses.members)


def test_chosen_orders_need_no_transposition_and_results_stay() -> None:
    """The first convolution reads the network's input, which has channels first, and so does not turn it."""
    for name in ("residual", "int8", "float"):
        old, (_, x) = network(name), given(name)
        made = ordered(old, TILES)
        first, *others = orders(made)
        assert first == ("nchw", "kcrs", "nhwc") and set(others) == {("nhwc", "kcrs", "nhwc")}
        assert not any(isinstance(node, Transpose) for _, node in made.graph.nodes)
        assert not fault(made, old, x.double().numpy())


@pytest.mark.parametrize("name", ["parts", "float_parts"])
def test_whatever_is_chosen_results_stay(name: str) -> None:
    old, (_, x) = network(name), given(name)
    assert not fault(ordered(old, TILES, possible(old)), old, x.double().numpy())
    assert not fault(ordered(old, TILES), old, x.double().numpy())


def test_a_convolution_with_an_epilogue_keeps_its_orders() -> None:
    module, inputs = layer(2)
    module.out = Grid(1e-5, 300)
    old = folded(from_torch(module, inputs))
    (node,) = (node for _, node in old.graph.nodes if isinstance(node, Contract))
    assert node.operator.epilogue and set(orders(ordered(old, TILES))) == {("nchw", "kcrs", "nchw")}


def test_types_without_tiles_and_broken_vectors_keep_their_orders() -> None:
    """Convolutions in bfloat16 are fast in tile registers alone, those in float32 if channels are whole vectors."""
    old, narrow = network("residual"), nn.Sequential(conv(3, 24), conv(24, 24), conv(24, 24))
    broken = folded(from_torch(narrow.eval(), (torch.randn(2, 3, 36, 36),)))
    assert ordered(old, PLAIN) is old and ordered(broken, PLAIN) is broken


def test_an_order_costs_what_the_model_predicts() -> None:
    """The seconds of both changes together are those between the best programs with channels first and with channels last."""
    op = operators.conv2d(n=1, c=64, h=28, w=28, k=128, r=1, s=1)
    last = with_orders(op, image="nhwc", result="nhwc")
    saved = layout_seconds(with_orders(op, result="nhwc"), PLAIN) + scattering_seconds(with_orders(op, image="nhwc"), PLAIN)
    image_first = layout_seconds(op, PLAIN) + scattering_seconds(op, PLAIN)
    assert image_first == pytest.approx(filled_seconds(op, PLAIN) - filled_seconds(last, PLAIN)) and image_first > 0.0
    assert layout_seconds(with_orders(op, image="nhwc"), PLAIN) == 0.0 < saved
    one = operators.conv2d(n=1, c=64, h=1, w=1, k=128, r=1, s=1)
    assert filled_seconds(one, PLAIN) == layout_seconds(one, PLAIN) == scattering_seconds(one, PLAIN) == 0.0


@pytest.mark.parametrize("wrong", ["image", "result"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_wrong_order_shows(dtype: torch.dtype, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a chain whose images have as many channels as rows and columns, so that shapes do not show it."""
    module, x = (one.to(dtype) for one in test_orders.given("chain"))
    old, right = folded(from_torch(module, (x,))), rewrite.with_orders
    every = possible(old)
    assert orders(ordered(old, TILES, every)) == [("nhwc", "kcrs", "nhwc"), ("nhwc", "kcrs", "nchw")]
    assert not fault(ordered(old, TILES, every), old, x.double().numpy())
    monkeypatch.setattr(rewrite, "with_orders", lambda op, **orders: right(op, **{**orders, wrong: "nchw"}))
    assert fault(ordered(old, TILES, every), old, x.double().numpy())


@pytest.mark.parametrize("name", NETWORKS)
def test_compiled_networks_are_right(name: str) -> None:
    """Results are within the bounds of float64, in vectors, in tile registers, or in the plain C that replaces them."""
    module, x = given(name)
    old = folded(from_torch(module, (x,)))
    compiled = compile_module(module, (x,), hardware=TILES, backend="analytic", trials=1, reuse=False)
    last = [kernel.source for kernel in compiled.kernels if 'image="nhwc"' in kernel.source]
    assert last and any("shapes_of_tiles" in source for source in last) == (not name.startswith("float"))
    with torch.no_grad():
        found = compiled(x).double().numpy()
    (expected,) = old.reference(x.double().numpy())
    assert (np.abs(found - expected.value) <= expected.error).all()
