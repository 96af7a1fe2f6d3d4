"""Joins in memory: which parts lie within which value, when they live, and where a copy is made first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Concat, Map
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.gir.nest import row_nest
from gensor_gym.networks.folding import folded
from gensor_gym.networks.layout import Base, layout_of
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import cut_all
from gensor_gym.networks.stamped import StampedNetwork
from tests.support.blocks.images import Dense
from tests.support.blocks.parts import Of
from tests.support.networks import kernels_of

SHAPE = (1, 4, 3, 5)


def network_of(body: Callable[..., Tensor], *shapes: tuple[int, ...]) -> Network:
    module: nn.Module = Of(lambda _, *inputs: body(*inputs)).eval()
    return folded(from_torch(module, [torch.randn(shape) for shape in shapes or (SHAPE,)]))


def joins_and_copies(network: Network) -> tuple[int, int]:
    free = [name for name, node in network.graph.nodes if isinstance(node, Concat) and network.is_free(name)]
    return len(free), sum(isinstance(node, Map) and "_copy" in name for name, node in network.graph.nodes)


@pytest.mark.parametrize(
    ("body", "joins", "copies"),
    [
        (lambda x: torch.cat([x + 1, x * 2, x.exp()], 1) * 3, 1, 0),
        (lambda x: torch.cat([x, x * 2, x * 3], 1) * 3, 1, 1),
        (lambda x: torch.cat([y := x * 2, y, y], 1) * 3, 1, 2),
        (lambda x: torch.cat([y := x * 2, x.exp()], 1) * torch.cat([x.exp(), y], 1), 2, 2),
        (lambda x: torch.cat([torch.cat([x * 2, x + 1], 1) + 1, x.exp()], 1) * 2, 2, 0),
        (lambda x: torch.cat([x * 2, x.exp(), x + 1], 2) * 2, 0, 0),
    ],
    ids=["made", "given", "twice", "in two joins", "of a join", "not the first axis"],
)
def test_which_parts_are_made_in_place(body: Callable[[Tensor], Tensor], joins: int, copies: int) -> None:
    assert joins_and_copies(network_of(body)) == (joins, copies)


def test_features_that_are_added_to_lie_in_one_value() -> None:
    """All layers of DenseNet in one memory; what lies there lives from the first part made to the last read."""
    torch.manual_seed(0)
    network = folded(from_torch(Dense().eval(), [torch.randn(1, 8, 6, 6)]))
    assert joins_and_copies(network) == (4, 1)
    plan = cut_all(network)
    assert not plan.fault and not any("concat" in str(step.computation) for step in plan.steps)
    (whole,) = {network.place_of(part)[0] for part in network.joins}
    layout = layout_of(plan, kernels_of(plan, 0, 0), "hot")
    assert layout.values[whole].base is Base.WORKSPACE
    places = sorted(layout.values[part].before for part in network.made_by(whole))
    assert places == [0, *(4 * 36 * (8 + 4 * number) for number in range(4))]
    assert 4 * 36 * 24 <= layout.needed <= layout.arena.bytes


def test_an_order_in_which_a_join_is_read_before_its_parts_are_made_is_no_plan() -> None:
    plan = cut_all(network_of(lambda x: torch.cat([x + 1, x * 2, x.exp()], 1) * 3))
    pieces = list(plan.pieces)
    assert not plan.fault
    pieces[-1], pieces[-2] = pieces[-2], pieces[-1]
    assert "which is not made before it" in type(plan)(plan.network, tuple(pieces)).fault


def test_a_join_is_an_output_and_is_exported(tmp_path: Path) -> None:
    """Called, with a clock between kernels, and as a library whose tables say where parts begin."""
    plan = cut_all(network_of(lambda x, y: torch.cat([x + y, x * y, x.exp()], 1), SHAPE, SHAPE))
    kernels = kernels_of(plan, 0, 0)
    function = NetworkFunction(plan, kernels, 1)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(SHAPE, np.float32) for _ in range(2))
    expected = np.concatenate([x + y, x * y, np.exp(x)], 1)
    np.testing.assert_allclose(function(x, y), expected, rtol=1e-6)
    stamped = StampedNetwork(plan, kernels, function, [x, y], 1)
    stamped.in_context(1)
    np.testing.assert_allclose(stamped.outputs[0], expected, rtol=1e-6)
    from gensor_gym.networks.export import export_network

    export_network(plan, kernels, function, tmp_path / "made", 1, [{} for _ in kernels], "joined")
    assert "{GG_OUTPUT, 0, 240}" in (tmp_path / "made" / "network.c").read_text()


@pytest.mark.parametrize(
    ("body", "kernels"),
    [
        (lambda x: torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1), 1),
        (lambda x: torch.cat([x[:, :, :, :16], x * 2, x + 1], 2), 3),
        (lambda x: x[:, :, :, ::2] * x[:, :, :, 1::2].sigmoid(), 2),
        (lambda x: torch.cat([x[:, 1:], x[:, :1]], 1), 1),
        (lambda x: (y := (x * 2)[:, :, :, :8], y + 1), 3),
        (lambda x: functional.conv_transpose2d(x, torch.ones(4, 3, 3, 3), None, 2, 1, 1), 9),
    ],
    ids=["patches", "maps", "gated", "rolled", "read twice", "phases of a transposed convolution"],
)
def test_parts_of_one_extent_take_one_pass(body: Callable[[Tensor], Tensor], kernels: int) -> None:
    """Also where parts are slices: these are read where they lie, unless something else reads them."""
    network = network_of(body, (2, 4, 6, 16))
    plan = cut_all(network)
    assert len(plan.steps) == kernels
    for step in plan.steps:
        if not isinstance(step.computation, Dataflow):
            continue  # a convolution
        nest = row_nest(step.computation)
        assert nest.rows * nest.columns <= max(value.size for value in network.graph.values.values())
