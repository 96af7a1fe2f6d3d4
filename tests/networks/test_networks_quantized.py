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

from agents import networks
from agents.modules import compile_module
from gensor_gym.dataflow.nodes import Contract
from gensor_gym.frontends.aten import quantized
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.frontends.unsupported import Unsupported
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.fine import fine
from gensor_gym.networks.network import Network
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

    def __init__(self, rng: random.Random, image: bool) -> None:
        super().__init__()
        self.image, self.into, self.function = image, grid(rng), rng.choice(("", "relu", "gelu"))
        self.out = grid(rng) if rng.random() < 0.8 else None
        self.residual = grid(rng) if rng.random() < 0.4 else None
        c, k, r = rng.choice((3, 8, 17)), rng.choice((5, 16, 33)), rng.choice((1, 3))
        self.groups = 2 if image and rng.random() < 0.2 else 1
        self.options: dict[str, Any] = {"stride": rng.choice((1, 2)), "padding": r // 2, "groups": self.groups}
        c, k = c * self.groups, k * self.groups
        self.weights = Weights(k, c // self.groups, r, r) if image else Weights(k, c)
        rows = rng.choice((1, 7, 20))
        self.shape = (rng.choice((1, 2)), c, 9, 7) if image else (rows, c)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Apply the layer to x; y is the residual."""
        x, w, bias = self.into(x), self.weights(), self.weights.bias
        made = nn.functional.conv2d(x, w, bias, **self.options) if self.image else nn.functional.linear(x, w, bias)
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
    module = Layer(rng, seed % 2 == 0).eval()
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
    numbers = torch.clamp(torch.round(made / module.out.scale) + module.out.zero, ends.min, ends.max)
    return made, (numbers - module.out.zero) * module.out.scale


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


def test_planted_faults_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zero point that is dropped, and another channel's scale; `tests/codegen/c` has numbers that are not clipped."""
    module, inputs = layer(2)
    module.into, folds = Grid(0.02, 100), networks.folded

    def faulty(network: Network) -> Network:
        made = folds(network)
        assert any(one.startswith("factors") for one in made.constants)
        arrays = {one: np.roll(array, 1, 0) if one.startswith("factors") else array for one, array in made.constants.items()}
        return dataclasses.replace(made, constants=arrays)

    def dropped(b: Any, numbers: str, axis: int) -> np.ndarray:
        return np.zeros(b.shapes[numbers][axis])

    for where, name, fault_of in ((quantized, "_sums", dropped), (networks, "folded", faulty)):
        with monkeypatch.context() as planted, torch.no_grad():
            planted.setattr(where, name, fault_of)
            assert fault(module, inputs, compiled(module, inputs)(*inputs)), name


class Network8(nn.Module):
    """Convolution, pooling, a residual block, means and a layer, all of quantised numbers."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first, self.second, self.last = Weights(width, 3, 3, 3), Weights(width, width, 1, 1), Weights(5, width)
        self.grids = [Grid(0.02, 120), Grid(0.03, 0), Grid(0.05, 128), Grid(0.04, 7)]

    def forward(self, x: Tensor) -> Tensor:
        """Apply the network to images."""
        into, one, other, mean = self.grids
        y = torch.relu(nn.functional.conv2d(into(x), self.first(), self.first.bias, padding=1))
        y = one(nn.functional.max_pool2d(y, 3, 2, 1))
        z = other(torch.relu(nn.functional.conv2d(y, self.second(), self.second.bias) + y))
        return nn.functional.linear(mean(z.mean((2, 3))), self.last(), self.last.bias)


def test_values_between_kernels_stay_in_8_bits() -> None:
    torch.manual_seed(0)
    module, x = Network8().eval(), torch.randn(2, 3, 12, 12)
    network = folded(from_torch(module, (x,)))
    steps = fine(network).steps
    texts = [str(step.computation).partition(")+")[2] for step in steps if not str(step.computation).startswith("fused")]
    assert texts == [
        "dequantize+bias+quantize", "dequantize+quantize", "dequantize+bias+residual_int8+relu+scale+quantize",
        "bias+dequantize+bias",
    ]  # fmt: skip
    written = [network.graph.values[name].dtype for step in steps for name in step.writes]
    assert written[:4] == ["int8"] * 4
    with torch.no_grad():
        found, wanted = compiled(module, (x,))(x), module(x)
    (bound,) = network.reference(x.numpy())
    assert (np.abs(found.numpy() - bound.value) <= bound.error).all() and bound.error.max() < 0.1
    torch.testing.assert_close(found, wanted, rtol=0, atol=float(bound.error.max()) + 1e-5)


class Whole(nn.Module):
    """A result of quantised numbers, or an operation on them."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Quantise x."""
        made: Tensor = self.function(Grid(0.1, 3).quantized(x))
        return made


@pytest.mark.parametrize("function, said", [
    (lambda x: x, "output 0 is of torch.uint8: expected what dequantize_per_tensor makes"),
    (lambda x: x + x, "reads quantised numbers: expected dequantize_per_tensor before"),
])  # fmt: skip
def test_what_is_refused(function: Any, said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        from_torch(Whole(function).eval(), (torch.randn(4, 4),))


def test_quantised_by_torchao() -> None:
    """The flow of torch's documentation, where torchao is installed."""
    flow = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    quantizers = pytest.importorskip("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    module, x = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 8)).eval(), torch.randn(20, 13)
    quantizer = quantizers.X86InductorQuantizer()
    quantizer.set_global(quantizers.get_default_x86_inductor_quantization_config())
    prepared = flow.prepare_pt2e(torch.export.export(module, (x,)).module(), quantizer)
    prepared(x)
    converted = flow.convert_pt2e(prepared)
    network = folded(from_torch(converted, (x,)))
    assert [node.operator.dtype for _, node in network.graph.nodes if isinstance(node, Contract)] == ["int8"] * 2
    with torch.no_grad():
        torch.testing.assert_close(compiled(converted, (x,))(x), converted(x), rtol=0, atol=1e-2)


@pytest.mark.parametrize(("zero", "dtype"), [(100_000, torch.uint8), (-7, torch.uint8), (-(2**31), torch.int8)])
def test_zero_points_that_no_number_has_are_computed_in_float32(zero: int, dtype: torch.dtype) -> None:
    """Sums of int32 would not hold them."""
    module, inputs = layer(1)
    module.into, module.out, module.residual = Grid(0.01, zero, dtype), None, None
    nodes = dict(from_torch(module, inputs).graph.nodes).values()
    assert {one.operator.dtype for one in nodes if isinstance(one, Contract)} == {"float32"}
    with torch.no_grad():
        found, wanted = compiled(module, inputs)(*inputs), module(*inputs)
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))


@pytest.mark.parametrize("zero", [300, -40_000, 100_000])
def test_zero_points_of_results_that_no_number_has_are_exact(zero: int) -> None:
    """An image's channels are lanes, whose stores add zero points in 16 bits."""
    module, inputs = layer(2)
    module.out = Grid(1e-5, zero)
    with torch.no_grad():
        found = compiled(module, inputs)(*inputs)
    assert not fault(module, inputs, found), fault(module, inputs, found)


def test_channels_may_be_counted_from_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    module, inputs = layer(1)
    counted = Q.dequantize_per_channel
    monkeypatch.setattr(
        Weights, "forward", lambda self: counted(self.numbers, self.scale, self.zero, -self.numbers.ndim, -128, 127, torch.int8)
    )
    with torch.no_grad():
        assert not fault(module, inputs, compiled(module, inputs)(*inputs))


@pytest.mark.parametrize("scale", [0.0, float("nan"), float("inf")])
def test_scales_that_are_no_numbers_are_refused(scale: float) -> None:
    module, inputs = layer(1)
    module.into = Grid(scale, 3)
    with pytest.raises(Unsupported, match="expected a finite scale that is not 0"):
        compiled(module, inputs)
