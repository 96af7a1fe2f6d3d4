"""Whole numbers and places that torch modules compute at each call: torch's numbers in float64, and by kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.plan import cut_all
from tests.frontends.test_torch_export import Of
from tests.support.networks import kernels_of
from tests.support.thorough import thorough_but

IDS = torch.tensor([[3, 0, 4, 4], [1, 2, 0, 3]])
FEW = IDS.clamp(max=3)
X = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))
Y = torch.randn(5, 3, 6, generator=torch.Generator().manual_seed(1))
TABLE = torch.randn(6, 5, generator=torch.Generator().manual_seed(2))
EQUAL = torch.tensor([[0.0, 2.0, 2.0, -1.0], [-np.inf, -np.inf, 1.0, -np.inf]])


def _routed(x: Tensor) -> Tensor:
    """The two largest of each row, as shares of one; the others 0."""
    top, places = x.topk(2, -1)
    return torch.zeros_like(x).scatter(-1, places, top.softmax(-1))


def _assigned(x: Tensor) -> Tensor:
    """One number in each place, then in each row, that a mask says."""
    y = x.clone()
    y[y > 1] = -3.0
    y[x[:, :, 0] > 0] = 2.5
    return y + 1


@torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())
def _grouped(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    """As transformers has it: rows in groups, each times the matrix of its group; 0 behind the last."""
    made = x.new_zeros(x.shape[0], w.shape[2])
    for first, (last, matrix) in zip([0, *ends.tolist()], zip(ends.tolist(), w, strict=True), strict=False):
        made[first:last] = x[first:last] @ matrix
    return made


@_grouped.register_fake
def _(x: Tensor, w: Tensor, _: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], w.shape[2])


def _by_experts(x: Tensor, ids: Tensor) -> Tensor:
    """Each row by the expert that it is sent to, those of one expert together, and back in order."""
    sent, order = ids.view(-1).sort()
    ends = torch.histc(sent.float(), 6, 0, 5).cumsum(0, dtype=torch.int32)
    made = _grouped(x.view(8, 6)[order], (X[0, 0] + Y[:, :1, :6].repeat(2, 6, 1)[:6]).contiguous(), ends)
    back = torch.empty_like(order)
    back[order] = torch.arange(8)
    return made[back]


STARTS = torch.tensor([0, 1, 1, 4, 8])
BINS = torch.tensor([-1.0, 4, 0, 5, -3, 3, 2, 3])
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "rounded": (lambda x: (x * 5).round() + torch.floor(x * 3) * 2 + torch.ceil(x * 7) - torch.trunc(x * 3) + x.frac(), (X,)),
    "halves": (lambda x: x.round() + torch.floor(x) + x.long(), (torch.arange(-6.0, 6.0) / 2,)),
    "waves": (lambda x: (x * 30).sin() + (x * 9).cos() + x.tan(), (X,)),
    "cast": (lambda x: (x * 4).long().float() * x, (X,)),
    "of whole numbers": (lambda ids: functional.embedding(ids % 3 + ids // 2, TABLE * 1.0), (IDS,)),
    "below 0": (lambda ids: (ids - 4) % 3 + (ids - 4) // 3 * 0.5, (IDS,)),
    "several axes": (lambda x, ids: x[torch.arange(2)[:, None], ids[:, :3] - 1], (X, FEW)),
    "last ones": (lambda x, ids: x[torch.arange(2), ids[:, 0] - 1] * 2, (X, FEW)),
    "axes that are apart": (lambda x, ids: x[ids[0, :2] - 3, :, ids[0, :2]], (Y, IDS)),
    "one axis": (lambda x, ids: x[:, ids[0] - 4], (X, IDS)),
    "one place": (lambda x: x[:, torch.tensor(2)] + 1, (X,)),
    "gather": (lambda x, ids: x.gather(1, ids[:, :, None].expand(2, 4, 6)), (X, FEW)),
    "gather few": (lambda x, ids: x.gather(2, ids[:, :3, None]) + x.gather(1, ids[:, :2, None]).sum(), (X, FEW)),
    "taken along": (lambda x, ids: torch.take_along_dim(x, ids[:, :, None], 2), (X, IDS)),
    "ids of ids": (lambda ids, few: functional.embedding(ids.gather(1, few[:, :2]), TABLE * 1.0), (IDS, FEW)),
    "argmax": (lambda x: functional.embedding(x.argmax(-1), TABLE) + x.argmin().float(), (X,)),
    "places of extremes": (lambda x: x.max(1)[0] + x.max(1)[1].float() - x.min(1)[1], (X,)),
    "equal ones": (lambda x: x.max(1)[1] * 10.0 + x.argmin(1), (EQUAL,)),
    "topk": (lambda x: x.topk(3, -1)[0].sum(-1) + x.topk(2, 1, largest=False)[1].sum(1).sum(-1)[:, None], (X,)),
    "topk of infinities": (lambda x: torch.zeros_like(x).scatter(-1, x.topk(3, -1)[1], 1.0).sum(-1), (EQUAL,)),
    "many of few": (lambda x: torch.cat(x.view(2, 24).topk(11, -1), 1) + x.view(2, 24).topk(22, -1, largest=False)[0], (X,)),
    "routed": (_routed, (X,)),
    "scatter": (lambda x, ids: x.scatter(2, ids[:, :, None], 2.0) + x.scatter(2, ids[:, :, None], x), (X, IDS)),
    "scatter and add": (lambda x, ids: torch.zeros(2, 6, 4).scatter_add(1, ids[:, None, :], x[:, :1, :4]), (X, IDS)),
    "one hot": (lambda x, ids: functional.one_hot(x.argmax(-1), 6) * x + functional.one_hot(ids, 6), (X, IDS)),
    "bags": (lambda ids: functional.embedding_bag(ids, TABLE), (IDS,)),
    "largest of bags": (lambda ids: functional.embedding_bag(ids, TABLE, mode="max") * 2, (IDS,)),
    "weighed bags": (lambda ids, w: functional.embedding_bag(ids, TABLE, mode="sum", per_sample_weights=w), (IDS, X[:, :, 0])),
    "bags of several lengths": (
        lambda ids, starts: functional.embedding_bag(ids.view(-1), TABLE, starts) + functional.embedding_bag(
            ids.view(-1), TABLE, starts, mode="max", padding_idx=4), (IDS, STARTS)),
    "bags to an end": (
        lambda ids, w: functional.embedding_bag(
            ids.view(-1), TABLE, STARTS, mode="sum", per_sample_weights=w, include_last_offset=True, padding_idx=0),
        (IDS, X[:, :, 0].reshape(-1))),
    "bags that end early": (
        lambda ids: functional.embedding_bag(
            ids.view(-1)[:6], TABLE, torch.tensor([0, 3, 5]), mode="sum", include_last_offset=True), (IDS,)),
    "in order": (lambda x: x.sort(-1)[0] + x.sort(1, descending=True)[0], (X,)),
    "orders": (lambda x: x.argsort(-1) + 10.0 * torch.sort(x, dim=1, descending=True, stable=True)[1], (EQUAL,)),
    "assigned by masks": (_assigned, (X,)),
    "products": (lambda ids, x: ids.prod(1) + (ids + 1).cumprod(1).sum(1) * 0.5 + (x > 0).prod(1)[:, 0], (IDS, X)),
    "sums of what is cut": (lambda x: x.sum(1, dtype=torch.int64) * 1.0, (X * 5,)),
    "experts": (_by_experts, (X, IDS)),
    "groups that end early": (
        lambda x, ids: _grouped(x.view(8, 6), Y[:4, :1].repeat(1, 6, 1), ids[0].cumsum(0).clamp(max=7)), (X, IDS)),
    "bins": (lambda x: torch.histc(x, 5, -1, 4), (BINS,)),
    "parts without elements": (
        lambda x: torch.cat((x[:, :4] * 2, x[:, 4:].exp()), 1) + torch.cat(x.split([0, 6], 2)[::-1], 2), (X,)),
    "nothing dropped": (lambda x: x + functional.dropout(torch.ones(6), 0.5, training=False), (X,)),
    "any and all": (lambda x: x * (x > 1).any(-1, keepdim=True) + (x > -2).all(1, keepdim=True) + x.bool().any(), (X,)),
}  # fmt: skip


@pytest.mark.parametrize("name", thorough_but(FUNCTIONS, *list(FUNCTIONS)[::3]))
def test_against_torch(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    network, expected = from_torch(Of(function).eval(), inputs), function(*inputs).numpy()
    for form in (network, folded(network)):
        (found,) = form.reference(*(one.numpy() for one in inputs))
        np.testing.assert_allclose(found.value, expected, rtol=3e-6, atol=3e-6)
        assert (found.error < 1e-4).all()  # whole numbers are known for sure
        assert not cut_all(form).fault


@pytest.mark.parametrize("name", thorough_but(FUNCTIONS, "rounded", "gather few", "orders"))
def test_kernels_against_torch(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    plan = cut_all(folded(from_torch(Of(function).eval(), inputs)))
    found = NetworkFunction(plan, kernels_of(plan, 0, 0), 1)(*inputs)
    np.testing.assert_allclose(found.numpy(), function(*inputs).numpy(), rtol=1e-5, atol=1e-5)


OUTSIDE = torch.tensor([[5, 0, 2, -9], [2, -5, 4, 3]])


@pytest.mark.parametrize("function", [
    lambda x, ids: x[torch.arange(2)[:, None], ids],
    lambda x, ids: x.gather(1, ids[:, :, None].expand(2, 4, 6)),
    lambda x, ids: x.transpose(0, 1)[ids, torch.arange(2)[:, None]],
])  # fmt: skip
def test_places_outside_of_one_of_several_axes_are_no_elements(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    inside = (OUTSIDE >= 0) & (OUTSIDE < 4)
    wanted = function(X, OUTSIDE.where(inside, 0)).where(inside[:, :, None], torch.nan).numpy()
    plan = cut_all(folded(from_torch(Of(function).eval(), (X, FEW))))
    np.testing.assert_array_equal(plan.network.reference(X.numpy(), OUTSIDE.numpy())[0].value, np.float64(wanted))
    np.testing.assert_array_equal(NetworkFunction(plan, kernels_of(plan, 0, 0), 1)(X, OUTSIDE).numpy(), wanted)


def test_places_outside_of_one_of_several_axes_are_not_written() -> None:
    def written(x: Tensor, ids: Tensor) -> Tensor:
        return x.index_put((torch.arange(2)[:, None], ids), torch.tensor(7.0))

    inside, wanted = (OUTSIDE >= 0) & (OUTSIDE < 4), X.clone()
    wanted[torch.arange(2)[:, None].expand(2, 4)[inside], OUTSIDE[inside]] = 7.0
    network = from_torch(Of(written).eval(), (X, FEW))
    np.testing.assert_array_equal(network.reference(X.numpy(), OUTSIDE.numpy())[0].value, wanted.double().numpy())
