"""Ids, masks and positions of torch modules: the same numbers as torch's; what float32 cannot do is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gensor_gym.frontends.torch_export import Unsupported, from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.plan import cut_all
from tests.frontends.test_torch_export import Of

IDS = torch.tensor([[3, 0, 4, 4], [1, 2, 0, 3]])
SEEN = torch.tensor([[True, True, False, True], [True, False, True, True]])
X = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))
TABLE = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "embedding": (lambda ids: functional.embedding(ids, TABLE * 1.0), (IDS,)),
    "positions": (lambda x: x + functional.embedding(torch.arange(4), TABLE * 1.0), (X,)),
    "seen": (lambda x, seen: x.masked_fill(~seen[..., None], -2.0), (X, SEEN)),
    "added mask": (lambda x, mask: x.softmax(1) + (1.0 - mask[:, :, None].to(x.dtype)) * -1e4, (X, SEEN.long())),
    "compared": (lambda x: torch.where((x > 0) & (x <= 1) | (x == x.amax()), x, 0.5 * x), (X,)),
    "unlike": (lambda x, y: ((x >= 0) ^ (y < 0)).float() + torch.logical_not(x).to(x.dtype), (X, X.flip(0))),
    "whole": (lambda ids, x: x * (ids + 1)[..., None] + (ids != 0)[..., None] * 2, (IDS, X)),
    "causal": (lambda x: (x @ x.mT + torch.triu(torch.full((4, 4), float("-inf")), 1)).softmax(-1) @ x, (X,)),
    "attention": (lambda x, seen: functional.scaled_dot_product_attention(x, x, x, seen[:, None]), (X, SEEN)),
    "attention, added": (lambda x, m: functional.scaled_dot_product_attention(x, x, x, m), (X, X[:, :, :4] * 3)),
    "attention of a constant mask": (
        lambda x: functional.scaled_dot_product_attention(x, x, x, torch.ones(4, 4, dtype=torch.bool).tril()), (X,)),
    "cast": (lambda seen, x: seen.float()[:, None] @ x, (SEEN, X)),
    "sum of a mask": (lambda seen, x: x.sum(1) / seen.sum(1, keepdim=True), (SEEN, X)),
    "part of ids": (lambda ids: functional.embedding(ids[:, 1:3], TABLE * 1.0), (IDS,)),
    "ids that are computed": (lambda ids, seen: functional.embedding(ids * seen, TABLE * 1.0), (IDS, SEEN)),
    "chosen": (lambda x: x[:, [2, 0, -1]] + x.index_select(1, torch.tensor([0, 0, 1])), (X,)),
    "turned round": (lambda x: x.flip(1) + x.roll(2, 2), (X,)),
    "one of each": (lambda x: x * functional.one_hot(torch.arange(6) % 3, 6).sum(0), (X,)),
    "type": (lambda seen, ids: seen.to(torch.int64) + ids * 0.5, (SEEN, IDS)),
    "constant": (lambda x: (x + 1, torch.arange(3).float()), (X,)),
    "random, not read": (lambda x: (torch.rand([]), x + 1)[1], (X,)),
    "number of an assertion": (lambda ids: (torch._check(ids.max().item() < 9), ids + 1)[1], (IDS,)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    network = from_torch(Of(function).eval(), inputs)
    expected = function(*inputs)
    for form in (network, folded(network)):
        found = form.reference(*(one.numpy() for one in inputs))
        for one, wanted in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
            np.testing.assert_allclose(one.value, wanted.numpy(), rtol=2e-6, atol=2e-6)
        assert not cut_all(form).fault


def test_a_row_of_a_mask_that_sees_nothing() -> None:
    """As torch: what sees nothing is 0."""
    seen = SEEN.clone()
    seen[1] = False
    function = FUNCTIONS["attention"][0]
    (found,) = from_torch(Of(function).eval(), (X, seen)).reference(X.numpy(), seen.numpy())
    np.testing.assert_allclose(found.value, function(X, seen).numpy(), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("function", "inputs", "said"),
    [
        (lambda x: functional.dropout(x, 0.5), (X,), "dropout.*: numbers dropped at random"),
        (lambda x: x + torch.rand(6), (X,), "aten.rand.default: random numbers"),
        (lambda x: x.double().sum(), (X,), "makes a tensor of torch.float64"),
        (lambda x: x.char().float() + 1, (X,), "reads what is cast to int8, float32: expected an output"),
        (lambda x: x.char() > 3, (X,), "reads what is cast to int8: expected an output"),
        (lambda x: (x, torch.tensor([0.1], dtype=torch.float64)), (X,), "output 1: a constant of torch.float64: expected what"),
        (lambda x: functional.max_pool1d((1e6 * x).long().int(), 2), (X,), "max_pool|whole numbers that may be above 16777216"),
        (lambda x: torch.polygamma(7, x), (X,), "derivative 7 of digamma: expected at most 6"),
        (lambda x: torch.mode(x), (X,), "most frequent of float32"),
        (lambda ids: torch.mode(ids.repeat(1, 5)), (IDS,), "result 1 of an operation"),
        (lambda x: torch.nanmedian(x, 1), (X,), "result 1 of an operation"),
        (lambda x: x[x > 0], (X,), "elements by a mask"),
        (lambda x: x.topk(9, 1)[0], (X.repeat(1, 33, 1),), "the 9 largest: expected 1 to 8, or at most 128 elements"),
        (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), (X,), "true_graph_0 a graph, as of torch.cond, is read"),
        (lambda x: torch.linalg.inv(x @ x.mT), (X,), r"changes what is outside it \(torch.linalg raises errors\)"),
        (lambda x: x + 1 if x.sum() > 0 else x, (X,), "Of: torch.export: .*[Dd]ata-dependent"),
        (lambda x: x.add_(1), (X.clone(),), "the module changes"),
    ],
)
def test_what_is_not_covered_is_named(function: Callable[..., Any], inputs: tuple[Tensor, ...], said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        from_torch(Of(function).eval(), inputs)


def test_a_number_that_is_read_from_a_buffer_is_a_constant() -> None:
    class Strided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("strides", torch.tensor([8.0, 16.0]))

        def forward(self, x: Tensor) -> Tensor:
            return x * torch.cat([torch.full((3,), one) for one in self.strides])  # type: ignore[arg-type]

    (found,) = from_torch(Strided().eval(), (X,)).reference(X.numpy())
    np.testing.assert_allclose(found.value, Strided()(X).numpy(), rtol=2e-6)


def test_buffers_that_change_and_parts_in_training_mode() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x + self.calls

    with pytest.raises(Unsupported, match="the module changes calls"):
        from_torch(Counts().eval(), (X,))
    parts = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.1)).eval()
    parts[1].train()
    with pytest.raises(Unsupported, match="1: aten.*dropout"):
        from_torch(parts, (X,))
    norm = nn.Sequential(nn.BatchNorm1d(4)).eval()
    norm[0].train()
    with pytest.raises(Unsupported, match="0: |changes"):
        from_torch(norm, (X,))
