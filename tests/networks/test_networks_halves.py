"""Modules of bfloat16 and float16: their networks err as little as torch's, on a CPU and in the emulator of a GPU."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from agents.modules import compile_module
from gensor_gym.dataflow.nodes import HALVES, Contract
from gensor_gym.frontends.torch_export import from_torch

KINDS = {name: getattr(torch, name) for name in HALVES}
IDS = torch.randint(0, 50, (2, 12), generator=torch.Generator().manual_seed(0))


class Convolution(nn.Module):
    """Convolution, normalisation, pooling, a layer and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.layer, self.last = nn.Linear(128, 10), nn.LayerNorm(10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.max_pool2d(torch.relu(self.norm(self.image(x))), 2)
        return torch.softmax(nn.functional.gelu(self.last(self.layer(y.flatten(1)))), -1)


class Attention(nn.Module):
    """Rows of a table, causal attention, and a norm that is computed in float32 as in Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.all, self.last = nn.Embedding(50, 32), nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.table(ids)
        q, k, v = self.all(x).view(2, -1, 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, -1, 32)
        z = self.last(y).float()
        z = z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6)
        return x + z.to(x.dtype), z


def case(name: str, kind: torch.dtype) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    if name == "attention":
        return Attention().eval().to(kind), IDS
    return Convolution().eval().to(kind), torch.randn(2, 3, 8, 8).to(kind)


def errors(made: Any, expected: Any) -> list[float]:
    """The largest error of every output."""
    made, expected = (one if isinstance(one, tuple) else (one,) for one in (made, expected))
    return [float((a.double() - b).abs().max()) for a, b in zip(made, expected, strict=True)]


def check(compiled: Any, module: nn.Module, given: torch.Tensor) -> None:
    """Types are torch's, and errors at most twice its."""
    made, own = compiled(given), module(given)
    exact = copy.deepcopy(module).double()(given.double() if given.is_floating_point() else given)
    kinds = [[one.dtype for one in (some if isinstance(some, tuple) else (some,))] for some in (made, own)]
    assert kinds[0] == kinds[1]
    assert all(ours <= 2.0 * theirs for ours, theirs in zip(errors(made, exact), errors(own, exact), strict=True))


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("name", ["convolution", "attention"])
def test_networks_of_16_bits(name: str, kind: str) -> None:
    module, given = case(name, KINDS[kind])
    network = from_torch(module, (given,))
    products = [node.operator.dtype for _, node in network.graph.nodes if isinstance(node, Contract)]
    assert set(products) == {kind} and len(products) >= 3
    check(compile_module(module, (given,), trials=1, reuse=False), module, given)


def test_a_gpu_computes_them_in_the_emulator() -> None:
    module, given = case("attention", torch.bfloat16)
    check(compile_module(module, (given,), hardware="h100", backend="emulated", trials=1, reuse=False), module, given)


def test_arrays_of_numpy_are_bits() -> None:
    module, given = case("convolution", torch.bfloat16)
    compiled = compile_module(module, (given,), trials=1)
    made = compiled(given.view(torch.int16).numpy().view(np.uint16))
    assert made.dtype == np.uint16
    assert torch.equal(torch.from_numpy(made.view(np.int16)).view(torch.bfloat16), compiled(given))


def test_products_of_two_types_are_in_float32() -> None:
    class Mixed(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (x.float() @ y).to(torch.bfloat16)

    x, y = torch.randn(4, 8).to(torch.bfloat16), torch.randn(8, 5)
    network = from_torch(Mixed().eval(), (x, y))
    assert [node.operator.dtype for _, node in network.graph.nodes if isinstance(node, Contract)] == ["float32"]
    made = compile_module(Mixed().eval(), (x, y), trials=1, reuse=False)(x, y)
    torch.testing.assert_close(made, (x.float() @ y).to(torch.bfloat16))
