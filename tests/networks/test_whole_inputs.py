"""Whole numbers as inputs of modules, wherever a kernel would read them, and masks that only look repeated."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.fine import fine
from gensor_gym.networks.load import NetworkFunction
from tests.frontends.test_torch_export import Of
from tests.support.networks import kernels_of
from tests.support.thorough import thorough_but


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """All three are whole numbers."""
    return (0.1 * (q.float() @ k.float().mT)).softmax(-1) @ v.float()


def masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """As the language models of a well-known library do."""
    q, k, v = (one.unflatten(-1, (2, 4)).transpose(1, 2) for one in x.chunk(3, -1))
    bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(torch.float32).min
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)


class Added(nn.Module):
    """A residual of whole numbers, and a softmax after it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.layer(x) + y.float(), -1)


class Pooled(nn.Module):
    """The mean of rows that count: at batch 1 the mask is expanded to the shape that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        counts = mask.unsqueeze(-1).float()
        return (self.layer(x, src_key_padding_mask=mask == 0) * counts).sum(1) / counts.sum(1)


def whole(*shape: int) -> torch.Tensor:
    return torch.randint(0, 9, shape)


def seen(batch: int, rows: int) -> torch.Tensor:
    return (torch.arange(rows) < rows - 2).long().repeat(batch, 1)


CASES = {
    "attention of whole numbers": (lambda: Of(attended), lambda: [whole(8, 16, 4) for _ in range(3)]),
    "mask": (lambda: Of(masked), lambda: [torch.randn(4, 6, 24), seen(4, 6)]),
    "residual": (Added, lambda: [torch.randn(16, 8), whole(16, 8)]),
    "pooled": (Pooled, lambda: [torch.randn(1, 6, 8), seen(1, 6)]),
}


@pytest.mark.parametrize("name", thorough_but(CASES, "mask"))
def test_against_torch(name: str) -> None:
    torch.manual_seed(0)
    build, draw = CASES[name]
    module, inputs = build().eval(), draw()
    plan = fine(folded(from_torch(module, inputs)))
    found = NetworkFunction(plan, kernels_of(plan, 0, 0), 2)(*inputs)
    with torch.no_grad():
        torch.testing.assert_close(found, module(*inputs), rtol=1e-4, atol=1e-5)
    assert name != "mask" or "@block" in str(plan)
