"""Attention in separate kernels where tile registers multiply its type, and in one kernel elsewhere."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from gensor_gym.chains.chain import is_chain
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.fine import fine
from tests.support.c_cases import machine

TILES = dataclasses.replace(machine(), tensor_peak=(("bfloat16", 5e12), ("int8", 1e13)))


class Attention(nn.Module):
    """Attention of heads whose queries, keys and values are inputs."""

    def __init__(self, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal

    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        batch, rows, width = parts[0].shape
        q, k, v = (one.reshape(batch, rows, self.heads, width // self.heads).transpose(1, 2) for one in parts)
        made = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return made.transpose(1, 2).reshape(batch, rows, width)


@pytest.mark.parametrize(
    ("rows", "causal", "dtype", "tiles", "is_one"),
    [
        (128, False, torch.bfloat16, True, False),
        (512, False, torch.bfloat16, True, False),
        (128, True, torch.bfloat16, True, True),
        (49, False, torch.bfloat16, True, True),
        (128, False, torch.float32, True, True),
        (128, False, torch.bfloat16, False, True),
    ],
    ids=["rows", "many rows", "causal", "a window", "float32", "no tile registers"],
)
def test_when_attention_is_one_kernel(rows: int, causal: bool, dtype: torch.dtype, tiles: bool, is_one: bool) -> None:
    size, heads = (32, 3) if rows == 49 else (64, 12)
    inputs = [torch.randn(64 if rows == 49 else 1, rows, heads * size).to(dtype) for _ in range(3)]
    plan = fine(folded(from_torch(Attention(heads, causal).eval(), inputs)), TILES if tiles else machine())
    chains = [one for one in (step.computation for step in plan.steps) if isinstance(one, Dataflow) and is_chain(one)]
    assert len(chains) == is_one
