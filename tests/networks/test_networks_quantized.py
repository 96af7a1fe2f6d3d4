"""Modules that torch has quantised: products in integers, exact but for steps near a tie, on numbers that stay 8-bit."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  (which registers the operations)
from torch import Tensor, nn

from agents.networks import compile_module
from gensor_gym.dataflow.nodes import Contract
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from tests.support.thorough import thorough_but

Q = torch.ops.quantized_decomposed


@dataclasses.dataclass(frozen=True)
class Grid:
    """Scale and zero point of a tensor's numbers."""

    scale: float
    zero: int
    dtype: torch.dtype = torch.uint8

    def quantized(self, x: Tensor) -> Tensor:
        """Numbers of x."""
        limits = torch.iinfo(self.dtype)
        made: Tensor = Q.quantize_per_tensor(x, self.scale, self.zero, limits.min, limits.max, self.dtype)
        return made

    def __call__(self, x: Tensor) -> Tensor:
        """What is left of x after it was quantised."""
        limits = torch.iinfo(self.dtype)
        made: Tensor = Q.dequantize_per_tensor(self.quantized(x), self.scale, self.zero, limits.min, limits.max, self.dtype)
        return made


class Weights(nn.Module):
    """int8 numbers of weights with a scale for each channel."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.register_buffer("numbers", torch.randint(-128, 128, shape, dtype=torch.int8))
        self.register_buffer("scale", torch.rand(shape[0]) * 0.02 / np.prod(shape[1:]) ** 0.5 + 1e-4)
        self.register_buffer("zero", torch.zeros(shape[0], dtype=torch.int64))
        self.bias = nn.Parameter(torch.randn(shape[0]))

    def forward(self) -> Tensor:
        """The weights."""
        made: Tensor = Q.dequantize_per_channel(self.numbers, self.scale, self.zero, 0, -128, 127, torch.int8)
        return made


class Layer(nn.Module):
    """A product of quantised numbers, perhaps a residual, a function, and its quantised result."""

    def __init__(self, rng: random.Random, into: Grid, out: Grid | None, function: str, residual: Grid | None, image: bool) -> None:
        super().__init__()
        self.into, self.out, self.function, self.residual, self.image = into, out, function, residual, image
        c, k, r = rng.choice((3, 8, 17)), rng.choice((5, 16, 33)), rng.choice((1, 3))
        self.groups = 2 if image and rng.random() < 0.2 else 1
        self.options: dict[str, Any] = {"stride": rng.choice((1, 2)), "padding": r // 2, "groups": self.groups}
        c, k = c * self.groups, k * self.groups
        self.weights = Weights(k, c // self.groups, r, r) if image else Weights(k, c)
        rows = rng.choice((1, 7, 20))
        self.shape = (rng.choice((1, 2)), c, 9, 7) if image else (rows, c)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Apply the layer to x; y is the residual."""
        x, w = self.into(x), self.weights()
        made = nn.functional.conv2d(x, w, self.weights.bias, **self.options) if self.image else nn.functional.linear(x, w, self.weights.bias)
        made = made if self.residual is None else made + self.residual(y)
        made = getattr(torch, self.function)(made) if self.function == "relu" else made
        made = nn.functional.gelu(made) if self.function == "gelu" else made
        return made if self.out is None else self.out(made)


def grid(rng: random.Random) -> Grid:
    """Some grid: of int8 or uint8, with any zero point."""
    dtype = rng.choice((torch.uint8, torch.uint8, torch.int8))
    limits = torch.iinfo(dtype)
    return Grid(rng.choice((0.02, 0.031, 1 / 64)), rng.choice((limits.min, rng.randint(limits.min, limits.max), 0)), dtype)


def layer(seed: int) -> tuple[Layer, tuple[Tensor, Tensor]]:
    """A random layer and its inputs."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    out = grid(rng) if rng.random() < 0.8 else None
    module = Layer(rng, grid(rng), out, rng.choice(("", "relu", "gelu")), grid(rng) if rng.random() < 0.4 else None, seed % 2 == 0).eval()
    x = torch.randn(module.shape)
    with torch.no_grad():
        made = module(x, torch.zeros(1))
    return module, (x, torch.randn(made.shape))


def exact(module: Layer, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(result before quantisation in float64 from exact integers, the same quantised)."""
    into, weights = module.into, module.weights
    limits = torch.iinfo(into.dtype)
    numbers = torch.clamp(torch.round(x * (1.0 / into.scale)) + into.zero, limits.min, limits.max).double() - into.zero
    if module.image:
        whole = nn.functional.conv2d(numbers, weights.numbers.double(), **module.options)
    else:
        whole = nn.functional.linear(numbers, weights.numbers.double())
    assert torch.equal(whole, whole.round())
    along = (-1, 1, 1) if module.image else (-1,)
    made = whole * (weights.scale.double() * float(np.float32(into.scale))).reshape(along) + weights.bias.double().reshape(along)
    made = made if module.residual is None else made + module.residual(y).double()
    made = torch.relu(made) if module.function == "relu" else nn.functional.gelu(made) if module.function == "gelu" else made
    if module.out is None:
        return made, made
    ends = torch.iinfo(module.out.dtype)
    return made, (torch.clamp(torch.round(made / module.out.scale) + module.out.zero, ends.min, ends.max) - module.out.zero) * module.out.scale


def fault(module: Layer, inputs: tuple[Tensor, Tensor], found: Tensor) -> str:
    """What is wrong with a result: far from the exact one, or a step away from it where that is no tie; empty if nothing is.

    Float32 after the integers has a few roundings: 1e-5 of a step's units, and torch's own products differ by as much.
    """
    with torch.no_grad():
        real, wanted = exact(module, *inputs)
        if module.out is None:
            return "" if torch.allclose(found.double(), real, rtol=1e-5, atol=1e-5) else f"off by {(found - real).abs().max()}"
        steps = (found.double() - wanted) / module.out.scale
        units = real / module.out.scale
        tie = ((units - units.floor()) - 0.5).abs() < 1e-4 * (1 + units.abs())
        wrong = (steps.abs() > 0.01) & ~(tie & (steps.abs() < 1.01))
    return f"{int(wrong.sum())} of {wrong.numel()}: {steps[wrong][:4]}" if wrong.any() else ""


def compiled(module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    return compile_module(module, inputs, backend="analytic", trials=1, reuse=False)


BATCHES, PER_BATCH = 20, 10


@pytest.mark.parametrize("batch", thorough_but(range(BATCHES), 0))
def test_random_layers_are_exact_but_for_ties(batch: int) -> None:
    """200 layers in all: linear ones and convolutions, with groups, strides, padding, residuals and functions."""
    for seed in range(PER_BATCH * batch, PER_BATCH * (batch + 1)):
        module, inputs = layer(seed)
        network = folded(from_torch(module, inputs))
        products = [node.operator for _, node in network.graph.nodes if isinstance(node, Contract)]
        assert [op.dtype for op in products] == ["int8"]
        with torch.no_grad():
            found = compiled(module, inputs)(*inputs)
        assert not fault(module, inputs, found), (seed, fault(module, inputs, found))
        assert not fault(module, inputs, module(*inputs).detach()), seed
