"""Orders of images in networks for CPUs: channels last in float32, and with tile registers (AMX) in bfloat16 and int8."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from agents.modules import compile_module
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.dataflow.nodes import Contract, Transpose
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts
from gensor_gym.graph.tables.layout import CONVOLUTION
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.folding import folded
from gensor_gym.networks.network import Network
from gensor_gym.networks.orders import kinds, rewrite
from gensor_gym.networks.orders.choice import classes_of
from gensor_gym.networks.orders.kinds import best_seconds
from gensor_gym.networks.orders.machines import convolution_seconds
from gensor_gym.networks.orders.rewrite import ordered
from gensor_gym.networks.orders.tilings import filled_by_pixels, filled_registers, fills_lines
from gensor_gym.operators.images import IMAGES, order_of
from gensor_gym.operators.text import with_arguments
from gensor_gym.operators.types import Operator
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
    """Convolutions in bfloat16 are fast in tile registers alone, those in float32 if channels are a multiple of eight."""
    old, narrow = network("residual"), nn.Sequential(conv(3, 20), conv(20, 20), conv(20, 20))
    broken = folded(from_torch(narrow.eval(), (torch.randn(2, 3, 36, 36),)))
    assert ordered(old, PLAIN) is old and ordered(broken, PLAIN) is broken


def in_orders(op: Operator, machine: Hardware) -> dict[str, float]:
    """Predicted seconds by the orders of image and result, such as "nchw nhwc"."""
    both = itertools.product(IMAGES, IMAGES)
    return {f"{one} {other}": convolution_seconds(with_arguments(op, image=one, result=other), machine) for one, other in both}


def test_tiles_lay_out_the_image_and_turn_the_result() -> None:
    """Their seconds are a sum of those of both tensors, in the ratio of their numbers of elements."""
    found = in_orders(operators.conv2d(n=1, c=64, h=28, w=28, k=128, r=1, s=1, dtype="bfloat16"), TILES)
    assert found["nhwc nhwc"] == 0.0 < found["nchw nhwc"] == pytest.approx(found["nhwc nchw"] / 2)
    assert found["nchw nchw"] == pytest.approx(found["nchw nhwc"] + found["nhwc nchw"])


def test_one_pixel_has_no_order() -> None:
    assert set(in_orders(operators.conv2d(n=1, c=64, h=1, w=1, k=128, r=1, s=1), PLAIN).values()) == {0.0}


@pytest.mark.parametrize("lanes", [8, 16])
def test_few_planes_are_read_by_lanes_of_pixels(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of few channels is cheapest with channels first on both sides, a window with channels last on both sides.

    Planes that are as many as `PLANES` are left to lanes of channels, unless they are small.
    """
    op = operators.conv2d(n=1, c=24, h=56, w=56, k=144, r=1, s=1)
    found = in_orders(op, machine(lanes))
    assert found["nchw nchw"] < found["nhwc nchw"] and found["nchw nhwc"] == pytest.approx(found["nhwc nhwc"], rel=0.05)
    window = in_orders(operators.conv2d(n=1, c=32, h=28, w=28, k=64, r=3, s=3, padding=1), machine(lanes))
    assert min(window, key=window.__getitem__) == "nhwc nhwc"
    graph = ConstructionGraph(dataclasses.replace(op, frozen=True), machine(lanes), "extended")
    assert found["nchw nchw"] < 0.95 * lines_of(graph, lanes)
    monkeypatch.setattr(kinds, "PLANES", 24)
    assert best_seconds(op, with_arguments(op, result="nhwc"), machine(lanes)) == pytest.approx(lines_of(graph, lanes))
    monkeypatch.setattr(kinds, "APART", 56 * 56 * 4 + 1)
    assert best_seconds(op, with_arguments(op, result="nhwc"), machine(lanes)) == found["nchw nchw"]


def lines_of(graph: ConstructionGraph, lanes: int) -> float:
    """Seconds of the best program with lanes of channels, where lines that registers turn cost a fifth of scattered stores."""
    rows = filled_registers(graph)
    last = dataclasses.replace(with_arguments(graph.operator, result="nhwc"), frozen=True)
    apart, stored = graph.latencies(rows), ConstructionGraph(last, machine(lanes), "extended").latencies(rows)
    pairs = zip(rows, apart, stored, strict=True)
    return min(0.2 * one + 0.8 * other if fills_lines(graph, Schedule(row)) else one for row, one, other in pairs)


@pytest.mark.parametrize("lanes", [8, 16])
def test_no_drawn_product_over_pixels_is_predicted_faster(lanes: int) -> None:
    """Of random walks from the program with lanes of pixels, none ends before the descent from filled registers."""
    op = dataclasses.replace(operators.conv2d(n=1, c=32, h=28, w=28, k=96, r=1, s=1), frozen=True)
    graph, rng = ConstructionGraph(op, machine(lanes), "extended"), np.random.default_rng(0)
    filled = filled_by_pixels(graph)
    (start,) = (row for row in starts(graph.tables, graph.initial().row) if row[CONVOLUTION] == 2)
    drawn = np.stack([graph.random_schedule(rng, start=Schedule(start)).row for _ in range(400)])
    drawn = drawn[drawn[:, CONVOLUTION] == 2]
    assert len(drawn) > 100 and (filled[:, CONVOLUTION] == 2).all() and graph.fits(filled).all()
    best = best_seconds(op, with_arguments(op, result="nhwc"), machine(lanes))
    assert best <= graph.latencies(filled).min() <= graph.latencies(drawn).min()
    other = dataclasses.replace(with_arguments(op.renamed(), image="nhwc"), frozen=True)
    assert not len(filled_by_pixels(ConstructionGraph(other, machine(lanes), "extended")))


@pytest.mark.parametrize("wrong", ["image", "result"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_wrong_order_shows(dtype: torch.dtype, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a chain whose images have as many channels as rows and columns, so that shapes do not show it."""
    module, x = (one.to(dtype) for one in test_orders.given("chain"))
    old, right = folded(from_torch(module, (x,))), rewrite.with_arguments
    every = possible(old)
    assert orders(ordered(old, TILES, every)) == [("nhwc", "kcrs", "nhwc"), ("nhwc", "kcrs", "nchw")]
    assert not fault(ordered(old, TILES, every), old, x.double().numpy())
    monkeypatch.setattr(rewrite, "with_arguments", lambda op, **orders: right(op, **{**orders, wrong: "nchw"}))
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
