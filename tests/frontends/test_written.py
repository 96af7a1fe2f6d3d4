"""Elements written by indices, as torch writes them: random shapes, axes and ids, equal ids and places of no id."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from gensor_gym.dataflow.nodes import Reduce, Scatter
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.rules import plan_of
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.plan import cut_all
from tests.frontends.test_torch_export import Of
from tests.support.networks import kernels_of
from tests.support.thorough import thorough_but

REDUCED = ("sum", "prod", "mean", "amax", "amin")
Given = tuple[Tensor, Tensor, Tensor, Tensor]


def drawn(seed: int) -> tuple[int, Given]:
    """An axis; a tensor, ids of each element and ids of each row along the axis, and what is written there."""
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 7, rng.integers(1, 4))
    axis, count = int(rng.integers(-len(shape), len(shape))), int(rng.integers(1, 9))
    written = shape.copy()
    written[axis] = count
    few = np.array([rng.integers(1, extent + 1) for extent in written])  # ids may have fewer elements than the tensor
    x, source = (torch.from_numpy(rng.standard_normal(one, np.float32)) for one in (shape, written))
    ids, rows = (torch.from_numpy(rng.integers(0, shape[axis], one)) for one in (few, count))
    return axis, (x, ids, rows, source)


def writing(axis: int) -> Callable[..., tuple[Tensor, ...]]:
    """A function that writes in all ways along an axis."""

    def written(x: Tensor, ids: Tensor, rows: Tensor, source: Tensor) -> tuple[Tensor, ...]:
        wide = rows.reshape([-1 if one == axis % x.ndim else 1 for one in range(x.ndim)]).expand_as(source)
        places = [None] * (axis % x.ndim) + [rows]
        put = [torch.ops.aten.index_put(x, places, source, add) for add in (True, False)]
        some = source[tuple(map(slice, ids.shape))]
        return (
            x.scatter(axis, ids, some), x.scatter(axis, wide, 2.5), x.scatter_add(axis, ids, some),
            torch.zeros_like(x).scatter_add(axis, wide, source), x.index_add(axis, rows, source), *put,
            *(x.scatter_reduce(axis, ids, some, how, include_self=own) for how in REDUCED for own in (True, False)),
            *(x.scatter_reduce(axis, wide, source, how, include_self=own) for how in REDUCED[1:] for own in (True, False)),
        )  # fmt: skip

    return written


@pytest.mark.parametrize("seed", thorough_but(range(24), 7))
def test_as_torch_writes(seed: int) -> None:
    axis, given = drawn(seed)
    expected = writing(axis)(*given)
    plan = cut_all(folded(from_torch(Of(writing(axis)).eval(), given)))
    for found, wanted in zip(plan.network.reference(*(one.numpy() for one in given)), expected, strict=True):
        np.testing.assert_allclose(found.value, wanted, rtol=1e-5, atol=1e-5)
        assert (np.abs(found.value - wanted.numpy()) <= found.error).all()
    kernels = kernels_of(plan, seed, 3)
    for threads in (1, 2):
        for made, wanted in zip(NetworkFunction(plan, kernels, threads)(*given), expected, strict=True):
            np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-5, atol=1e-5)


def messages(x: Tensor, edges: Tensor) -> Tensor:
    """A layer of a graph network: means of the neighbours of each node, as torch_geometric computes them."""
    sources, targets = edges
    sent = x.index_select(-2, sources)
    count = x.new_zeros(len(x)).scatter_add_(0, targets, x.new_ones(len(targets)))
    summed = x.new_zeros(x.shape).scatter_add_(0, targets.view(-1, 1).expand_as(sent), sent)
    return summed / count.clamp(min=1).view(-1, 1).expand_as(summed)


def test_messages_of_a_graph_are_read_and_added_in_one_kernel() -> None:
    """No value has an element for each pair of a node and an edge, so graphs may be large."""
    rng = np.random.default_rng(0)
    given = torch.randn(3000, 8), torch.from_numpy(rng.integers(0, 3000, (2, 20000)))
    network = folded(from_torch(Of(messages).eval(), given))
    nodes = network.nodes.values()
    assert max(value.size for value in network.graph.values.values()) == 20000 * 8
    assert not any(isinstance(node, Reduce) for node in nodes)
    plan = plan_of(network, "fine")
    (step,) = (step for step in plan.steps if "Gather" in str(step.computation.nodes))
    assert any(isinstance(node, Scatter) for _, node in step.computation.nodes)


def between(x: Tensor, edges: Tensor, chosen: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Sums over the edges from nodes of x to four other nodes."""
    sent = chosen(x, edges[0])
    return x.new_zeros(4, x.shape[1]).scatter_add(0, edges[1].view(-1, 1).expand_as(sent), sent)


@pytest.mark.parametrize(("chosen", "most"), [
    (lambda x, ids: x.index_select(0, ids), 9), (lambda x, ids: x[ids], None),
])  # fmt: skip
def test_ids_of_two_tables_in_one_input(chosen: Callable[[Tensor, Tensor], Tensor], most: int | None) -> None:
    """Calls check only what holds for all ids of the input: the first table has nine rows, the second four."""
    x, edges = torch.randn(9, 2), torch.tensor([[8, 4, 7, 0, 8], [3, 0, 1, 3, 2]])
    network = folded(from_torch(Of(lambda x, edges: between(x, edges, chosen)).eval(), (x, edges)))
    assert [*network.id_limits.values()] == ([] if most is None else [most])
    network.called.check_ids((x, edges))
    (found,) = network.reference(x.numpy(), edges.numpy())
    np.testing.assert_allclose(found.value, between(x, edges, chosen), rtol=1e-6, atol=1e-6)


def test_the_smallest_table_of_a_whole_input_counts() -> None:
    x, ids = torch.randn(9, 2), torch.tensor([3, 0, 1])
    network = from_torch(Of(lambda x, ids: x.index_select(0, ids) + x[:4].index_select(0, ids) + ids[:1]).eval(), (x, ids))
    assert [*network.id_limits.values()] == [4]


def test_an_id_outside_its_axis_writes_nothing() -> None:
    """It does not write to an element of a neighbouring line either; torch refuses the call."""
    given = torch.zeros(2, 3), torch.tensor([[0, 1, 2], [1, 2, 2]]), torch.ones(2, 3)
    plan = cut_all(folded(from_torch(Of(lambda x, ids, source: x.scatter_add(1, ids, source)).eval(), given)))
    ids, expected = torch.tensor([[0, 3, 4], [-1, 2, 2]]), [[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]
    (found,) = plan.network.reference(given[0].numpy(), ids.numpy(), given[2].numpy())
    np.testing.assert_array_equal(found.value, expected)
    np.testing.assert_array_equal(NetworkFunction(plan, kernels_of(plan, 0, 3), 1)(given[0], ids, given[2]), expected)
