"""Torch modules as networks: the same numbers as torch's, in float64 with a bound; what is not covered is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn import functional

from gensor_gym.frontends import torch_export
from gensor_gym.frontends.torch_export import Unsupported, from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.plan import cut_all


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def check(module: nn.Module, *shapes: tuple[int, ...], seed: int = 0, dtype: torch.dtype = torch.float64) -> None:
    """The network and its folded form compute what torch computes, and all pieces of the plan have kernels.

    `dtype` is torch's; float32 where it decides which numbers are read.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(shape, generator=generator) for shape in shapes]
    network = from_torch(module.eval(), inputs)
    with torch.no_grad():
        expected = module.to(dtype)(*(one.to(dtype) for one in inputs))
    for form in (network, folded(network)):
        (found,) = form.reference(*(one.numpy() for one in inputs))
        room = found.error + 1e-6 * (1.0 + np.abs(found.value))  # constants that were folded are rounded to float32 once more
        assert found.value.shape == tuple(expected.shape) and (np.abs(found.value - expected.numpy()) <= room).all()
        assert not cut_all(form).fault


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "relu": (torch.relu, ((3, 5),)),
    "gelu": (functional.gelu, ((3, 5),)),
    "silu": (functional.silu, ((3, 5),)),
    "tanh_gelu": (lambda x: functional.gelu(x, approximate="tanh"), ((3, 5),)),
    "hardswish": (functional.hardswish, ((3, 5),)),
    "relu6": (functional.relu6, ((3, 5),)),
    "clamp": (lambda x: x.clamp(max=0.5), ((3, 5),)),
    "rsqrt": (lambda x: (x * x + 1).rsqrt(), ((3, 5),)),
    "sigmoid": (torch.sigmoid, ((3, 5),)),
    "softmax": (lambda x: x.softmax(1), ((3, 5, 4),)),
    "mean": (lambda x: x.mean((1, 2)), ((3, 5, 4),)),
    "sum": (lambda x: x.sum(-1, keepdim=True), ((3, 5),)),
    "amax": (lambda x: x.amax(0), ((3, 5),)),
    "alpha": (lambda x, y: torch.sub(x, y, alpha=3), ((3, 5), (5,))),
    "power": (lambda x: x**2, ((3, 5),)),
    "quotient": (lambda x: 1 / (x * x + 1), ((3, 5),)),
    "layer_norm": (lambda x: functional.layer_norm(x, (5,)), ((3, 5),)),
    "matmul": (torch.matmul, ((2, 3, 4), (4, 5))),
    "outer": (torch.matmul, ((2, 1, 3, 4), (6, 4, 5))),
    "addmm": (torch.addmm, ((5,), (3, 4), (4, 5))),
    "split": (lambda x: x.split(2, 1)[1] + x.chunk(2, 1)[0], ((3, 4),)),
    "cat": (lambda x, y: torch.cat([x, y], 1) * 2, ((3, 4), (3, 2))),
    "select": (lambda x: x[:, 1] + x[:, -1], ((3, 4),)),
    "transposed": (lambda x: x.transpose(1, 2) + 1, ((2, 3, 4),)),
    "squeezed": (lambda x: x.unsqueeze(1).squeeze(1).flatten() * 2, ((3, 4),)),
    "expanded": (lambda x: x.expand(2, -1, 4) * 2, ((3, 1),)),
    "attention": (functional.scaled_dot_product_attention, ((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4))),
    "causal": (lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True), ((2, 3, 5, 4),)),
    "max_pool": (lambda x: functional.max_pool2d(x, 3, 2, 1), ((1, 2, 7, 8),)),
    "avg_pool": (lambda x: functional.avg_pool2d(x, 2), ((1, 2, 6, 8),)),
    "itself": (lambda x: x, ((2, 3),)),
    "repeated": (lambda x: x.expand(4, 3), ((1, 3),)),
    "shaped": (lambda x: x.view(6), ((2, 3),)),
    "adaptive": (lambda x: functional.adaptive_avg_pool2d(x, (3, 4)), ((1, 2, 6, 8),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function, shapes = FUNCTIONS[name]
    check(Of(function), *shapes)


def normalised(k: int) -> nn.BatchNorm2d:
    """A batch normalisation with statistics and weights that are not 0 and 1."""
    norm = nn.BatchNorm2d(k)
    for part in (norm.running_mean, norm.weight, norm.bias):
        nn.init.normal_(part)  # type: ignore[arg-type]
    nn.init.uniform_(norm.running_var, 0.5, 2.0)  # type: ignore[arg-type]
    return norm


KINDS: list[dict[str, Any]] = [{}, {"groups": 4}, {"groups": 2, "bias": False}, {"stride": 2, "dilation": 2, "padding": 2}]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_a_convolution_takes_its_normalisation_into_its_weights(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(4, 4, 3, **options), normalised(4), nn.ReLU())
    check(module, (2, 4, 7, 8))
    plan = cut_all(folded(from_torch(module.float().eval(), [torch.randn(2, 4, 7, 8)])))
    (step,) = plan.steps
    assert [stage.name for stage in step.computation.epilogue][-2:] == ["bias", "relu"]  # type: ignore[union-attr]
    assert "scale" not in str(step.computation)


def test_a_normalisation_before_a_convolution_stays() -> None:
    torch.manual_seed(0)
    check(nn.Sequential(normalised(3), nn.Conv2d(3, 2, 3)), (1, 3, 5, 5))


def test_a_product_that_others_read_keeps_its_weights() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1, bias=False), normalised(3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return self.norm(y) + y

    torch.manual_seed(0)
    check(Twice(), (1, 3, 4, 4))


@pytest.mark.parametrize(
    ("module", "shape", "said"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.Sequential(Of(lambda x: x.mode(1)[0]))), (2, 4), "1.0: aten.mode"),
    ],
)  # fmt: skip
def test_what_is_not_covered_is_named_with_its_place(module: nn.Module, shape: tuple[int, ...], said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        from_torch(module.eval(), [torch.randn(shape)])


def test_inputs_and_modes_that_are_refused() -> None:
    with pytest.raises(ValueError, match="training mode"):
        from_torch(nn.ReLU().train(), [torch.randn(2)])
    for module, inputs in ((None, [torch.randn(2)]), (nn.ReLU().eval(), torch.randn(2))):
        with pytest.raises(ValueError, match="expected a module and its example inputs, a tuple or a dict by name"):
            from_torch(module, inputs)  # type: ignore[arg-type]
    for wrong in (torch.ones(2, dtype=torch.uint8), torch.ones(2, dtype=torch.float64), np.ones(2)):
        with pytest.raises(ValueError, match="example input 0 is .*: expected a float32 tensor"):
            from_torch(nn.ReLU().eval(), [wrong])  # type: ignore[list-item]


def test_equal_layers_are_one_computation() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Tanh()) for _ in range(3)))
    plan = cut_all(folded(from_torch(module.eval(), [torch.randn(4, 6)])))
    assert len(plan.steps) == 9 and len({step.computation for step in plan.steps}) == 3


def test_what_is_covered_is_not_decomposed_and_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 8)
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.LayerNorm(8), nn.Softmax(-1)).eval()
    changing = Of(lambda x: x.clone().fill_(2.0) + x).eval()
    calls = list[str]()
    decompose = ExportedProgram.run_decompositions
    monkeypatch.setattr(ExportedProgram, "run_decompositions", lambda self, table: calls.append("") or decompose(self, table))
    networks = [from_torch(one, [x]) for one in (module, changing)]
    assert len(calls) == 1  # for what is changed in place alone
    monkeypatch.setattr(torch_export, "_is_covered", lambda program: False)
    for one, network in zip((module, changing), networks, strict=True):
        again = from_torch(one, [x])
        assert again.graph == network.graph and again.origins.keys() == network.origins.keys()
        for name, array in again.constants.items():
            np.testing.assert_array_equal(array, network.constants[name])
