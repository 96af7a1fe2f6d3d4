"""Depthwise convolutions with channels last: the operator, its programs, and the choice in networks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from agents.gensor.markov import MarkovExtended
from agents.modules import compile_module
from gensor_gym import hardware, operators
from gensor_gym.codegen import generate
from gensor_gym.construction import ConstructionGraph
from gensor_gym.dataflow.nodes import Contract, Transpose
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.folding import folded
from gensor_gym.networks.network import Network
from gensor_gym.networks.orders.choice import classes_of, costs_of, is_depthwise
from gensor_gym.networks.orders.machines import IN_ROWS, LAST, convolution_seconds
from gensor_gym.networks.orders.rewrite import ordered
from gensor_gym.networks.orders.tilings import LEAST_OF_WINDOWS, filled_by_windows
from gensor_gym.operators.images import IMAGES, order_of
from gensor_gym.operators.reference import evaluate
from gensor_gym.operators.text import with_arguments
from gensor_gym.operators.traits import shares_lanes
from gensor_gym.operators.types import Operator
from tests.networks.test_networks_quantized import Grid, Weights
from tests.networks.test_orders import conv, fault
from tests.support.c_cases import check, machine

TEXT = 'depthwise_conv2d({}, image="nhwc", weights="rskc")'
TILES = dataclasses.replace(machine(), tensor_peak=(("bfloat16", 3e12), ("int8", 6e12)))
SIZES = [
    "n=2, c=40, h=9, w=7, r=3, s=3, padding=1", "n=1, c=24, h=14, w=14, r=5, s=5, stride=2, padding=2",
    "n=1, c=16, h=7, w=7, r=3, s=3", "n=1, c=5, h=12, w=8, r=2, s=3, stride=(1, 2), padding=(1, 0)",
    "n=1, c=70, h=7, w=7, r=7, s=7, padding=3",
]  # fmt: skip


class Mobile(nn.Module):
    """A block of an EfficientNet: wider, depthwise, a gate of each channel by the mean of its pixels, narrower, a residual."""

    def __init__(self, channels: int = 24, size: int = 5, gated: bool = True) -> None:
        super().__init__()
        wide = 4 * channels
        self.first, self.wider = nn.Conv2d(3, channels, 3, stride=2, padding=1), conv(channels, wide, 1)
        self.deep, self.narrower = conv(wide, wide, size, groups=wide), conv(wide, channels, 1)
        self.gate, self.last = nn.Linear(wide, wide), nn.Linear(channels, 10)
        self.gated = gated

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.first(x))
        y = nn.functional.silu(self.deep(torch.relu(self.wider(x))))
        if self.gated:
            y = y * torch.sigmoid(self.gate(y.mean((2, 3))))[:, :, None, None]
        return self.last((self.narrower(y) + x).mean((2, 3)))


class Mobile8(nn.Module):
    """A block of a MobileNetV2 in int8: wider, depthwise, narrower; numbers are padded by their zero point."""

    def __init__(self) -> None:
        super().__init__()
        self.grids = Grid(0.02, 128), Grid(6 / 255, 0), Grid(6 / 255, 7)
        self.wider, self.deep, self.narrower = Weights(72, 24, 1, 1), Weights(72, 1, 3, 3), Weights(40, 72, 1, 1)

    def forward(self, x: Any) -> Any:
        given, wide, deep = self.grids
        x = wide(nn.functional.relu6(nn.functional.conv2d(given(x), self.wider(), self.wider.bias)))
        x = deep(nn.functional.relu6(nn.functional.conv2d(x, self.deep(), self.deep.bias, padding=1, groups=72)))
        return nn.functional.conv2d(x, self.narrower(), self.narrower.bias).mean((2, 3))


def network(module: nn.Module, size: int = 28) -> Network:
    torch.manual_seed(0)
    return folded(from_torch(module.eval(), (torch.randn(1, 3, size, size).to(next(module.parameters()).dtype),)))


def deep(made: Network) -> list[Operator]:
    every = [node.operator for _, node in made.graph.nodes if isinstance(node, Contract)]
    return [op for op in every if op.name == "depthwise_conv2d"]


@pytest.mark.parametrize("sizes", SIZES)
def test_the_operator_computes_the_same_in_both_orders(sizes: str) -> None:
    plain, last = operators.parse(f"depthwise_conv2d({sizes})"), operators.parse(TEXT.format(sizes))
    assert operators.parse(str(last)) == last and shares_lanes(last) and not shares_lanes(plain)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(t.shape) for t in plain.inputs)
    found = evaluate(last, [x.transpose(0, 2, 3, 1), w.transpose(2, 3, 0, 1)])
    assert np.allclose(found.transpose(0, 3, 1, 2), evaluate(plain, [x, w]))


@pytest.mark.parametrize("order", ["nhcw", "chwn", 3])
def test_an_unknown_order_is_refused_by_name(order: Any) -> None:
    with pytest.raises(ValueError, match=f"image.*{order}"):
        operators.depthwise_conv2d(1, 4, 8, 8, 3, 3, image=order)


@pytest.mark.parametrize("lanes, dtype", [(8, "float32"), (16, "float32"), (16, "bfloat16"), (16, "int8")])
@pytest.mark.parametrize("sizes", SIZES)
def test_programs_that_fill_registers_by_windows_are_legal_and_right(sizes: str, lanes: int, dtype: str) -> None:
    after = "+dequantize+bias+relu6+quantize" if dtype == "int8" else "+bias+relu"
    op, hw = operators.parse(TEXT.format(f'{sizes}, dtype="{dtype}"') + after), machine(lanes)
    graph = ConstructionGraph(op, hw, "extended")
    rows = filled_by_windows(graph)
    tiles = rows[:, 1:5].prod(axis=1) // lanes
    assert all(graph.is_legal(Schedule(row)) for row in rows)
    if len(rows):
        assert tiles.min() >= LEAST_OF_WINDOWS and tiles.max() <= int(hw.memory[0].capacity) // (8 * lanes)
    some = [Schedule(row) for row in rows[:: max(1, len(rows) // 6)]]
    rng = np.random.default_rng(1)
    check([generate(op, one, hw) for one in (*some, *(graph.random_schedule(rng) for _ in range(4)))], 1, 2)


def test_the_ranking_begins_no_later_than_a_program_by_windows() -> None:
    graph = ConstructionGraph(operators.parse(TEXT.format("n=1, c=480, h=14, w=14, r=5, s=5, padding=2")), machine(), "extended")
    few, rows = MarkovExtended(walkers=4, steps=8, refiners=0, columns=0), filled_by_windows(graph)
    found = few.construct(graph, np.random.default_rng(0))
    assert found.latencies[0] <= graph.latencies(rows).min() * (1 + 1e-9)


@pytest.mark.parametrize("gated, dtype, hw", [
    (False, torch.float32, machine()), (True, torch.float32, machine()), (True, torch.bfloat16, TILES),
], ids=["plain", "gated", "bfloat16"])  # fmt: skip
def test_networks_keep_results_whatever_is_chosen(gated: bool, dtype: torch.dtype, hw: Hardware) -> None:
    old = network(Mobile(gated=gated).to(dtype))
    x = torch.randn(1, 3, 28, 28).to(dtype).double().numpy()
    made = ordered(old, hw)
    assert not fault(made, old, x)
    assert [order_of(op, "image") for op in deep(made)] == ["nhwc"]
    assert not any(isinstance(node, Transpose) for _, node in made.graph.nodes)
    every = frozenset(one for uses in classes_of(old, hw) if not uses.is_fixed for one in uses.members)
    assert not fault(ordered(old, hw, every), old, x)
    assert not fault(ordered(old, hw, frozenset()), old, x)


def test_quantised_blocks_can_keep_channels_last() -> None:
    torch.manual_seed(0)
    module, x = Mobile8().eval(), torch.randn(2, 24, 14, 14)
    old = folded(from_torch(module, (x,)))
    every = frozenset(one for uses in classes_of(old, TILES) if not uses.is_fixed for one in uses.members)
    made = ordered(old, TILES, every)
    (op,) = deep(made)
    assert (order_of(op, "image"), op.dtype) == ("nhwc", "int8") and not fault(made, old, x.double().numpy())


def test_a_compiled_block_is_right() -> None:
    torch.manual_seed(0)
    module, x = Mobile(gated=False).eval(), torch.randn(2, 3, 28, 28)
    with torch.no_grad():
        compiled, expected = compile_module(module, (x,), trials=1), module(x)
    assert any('image="nhwc", weights="rskc"' in str(step.computation) for step in compiled.plan.steps)
    assert torch.allclose(torch.as_tensor(np.asarray(compiled(x))), expected, atol=1e-4)


def test_other_types_and_machines_and_weights_of_a_call_keep_their_order() -> None:
    old = network(Mobile(gated=False))
    assert deep(ordered(old, hardware.get("h100"))) == deep(old)

    class Given(nn.Module):
        def forward(self, x: Any, w: Any) -> Any:
            return nn.functional.conv2d(x, w, groups=32, padding=1).relu().mean((2, 3))

    called = folded(from_torch(Given().eval(), (torch.randn(1, 32, 14, 14), torch.randn(32, 1, 3, 3))))
    assert not any(is_depthwise(called, node, machine()) for _, node in called.graph.nodes)
    for dtype, hw, order in ((torch.bfloat16, TILES, 1), (torch.bfloat16, machine(), 0), (torch.float16, TILES, 0)):
        halves = network(Mobile(gated=False).to(dtype))
        assert [order_of(op, "image") for op in deep(ordered(halves, hw))] == [IMAGES[order]]


def test_costs_are_those_of_both_orders() -> None:
    hw, old = machine(), network(Mobile())
    (op,), made = deep(old), costs_of(old, hw, classes_of(old, hw))
    both = [convolution_seconds(one, hw) for one in (op, with_arguments(op, **LAST, **IN_ROWS))]
    assert both[1] < both[0] and any(np.array_equal(cost, both) for _, cost in made)
