"""What modules of vision and language are made of: torch's numbers in float64, and a kernel for every piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from gensor_gym.frontends.torch_export import Unsupported, from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.plan import cut_all
from tests.frontends.test_torch_export import Of, check
from tests.support import networks
from tests.support.thorough import thorough_but

Made = Callable[..., Any]
IMAGE, SIGNAL, ROWS = (2, 4, 7, 9), (2, 4, 10), (2, 5, 8)

def _assigned(x: torch.Tensor) -> torch.Tensor:
    """In place, to a slice of a copy and to one place: numbers and values."""
    y = x.clone()
    y[:, :2] = 0
    y[:, :, 1:4] = x[:, :, 3:6] * 2
    y[..., -1] = x[..., 0]
    return y + 1


MAPS: dict[str, Made] = {
    "elu": functional.elu, "selu": functional.selu, "celu": functional.celu, "leaky": lambda x: functional.leaky_relu(x, 0.1),
    "softplus": functional.softplus, "mish": functional.mish, "logsigmoid": functional.logsigmoid,
    "glu": lambda x: functional.glu(x, 1), "softsign": functional.softsign, "hardshrink": functional.hardshrink,
    "log1p": lambda x: torch.log1p(x.abs()), "sign": lambda x: x.sign() * x, "rsub": lambda x: 1 - x,
    "power": lambda x: x**4 + x.abs() ** 2.5 + (x * x + 1) ** -2 + 2.0**x, "lerp": lambda x: torch.lerp(x, x * x, 0.3),
    "clamp": lambda x: torch.clamp(x, min=0.5 * x, max=x * x), "addcmul": lambda x: torch.addcmul(x, x, x, value=2),
    "hardtanh": functional.hardtanh,
}  # fmt: skip
REDUCTIONS: dict[str, Made] = {
    "mean": lambda x: x.mean(), "var": lambda x: x.var((1, 3)), "std": lambda x: x.std(1, keepdim=True, unbiased=False),
    "var by default": lambda x: torch.ops.aten.var.correction(x, [1, 3]),
    "var_mean": lambda x: torch.cat(torch.var_mean(x, (2, 3)), 1), "amin": lambda x: x.amin((0, 2)), "max": lambda x: x.max(1)[0],
    "all": lambda x: x.max() - x.min() + x.sum(), "apart": lambda x: x.sum((0, 2)) + x.mean((0, 2)),
    "normalize": lambda x: functional.normalize(x, dim=1), "norm": lambda x: torch.linalg.vector_norm(x, 1, 2),
    "logsumexp": lambda x: x.logsumexp(1), "log_softmax": lambda x: x.log_softmax(1), "cumsum": lambda x: x.cumsum(2),
    "prod": lambda x: x.prod(3) + x.prod() + x.prod(2, keepdim=True)[..., 0], "cumprod": lambda x: x.cumprod(2) * x.cumprod(1),
    "remainder": lambda x: x % 0.7 + torch.remainder(x, -0.3) + torch.remainder(3.0, x) + (4 * x) % x.flip(0),
    "cut quotients": lambda x: torch.fmod(x, x.flip(1)) + (3 * x) // x.flip(0) + torch.div(x, 0.3, rounding_mode="trunc"),
    "cosine": lambda x: functional.cosine_similarity(x, x * x, 1),
}  # fmt: skip
MOVES: dict[str, Made] = {
    "pad": lambda x: functional.pad(x, (1, 2, 0, 1), value=2.0) * 2, "crop": lambda x: functional.pad(x, (-1, -2)) + 1,
    "reflect": lambda x: functional.pad(x, (1, 2, 2, 1), "reflect"),
    "circular": lambda x: functional.pad(x, (1, 2, 1, 1), "circular"),
    "replicate": lambda x: functional.pad(x, (1, 2, 0, 1), "replicate"), "steps": lambda x: x[:, ::2, 1::3, ::2] + 1,
    "assigned": lambda x: _assigned(x),
    "diagonals": lambda x: x.diagonal(0, 2, 3) + x.diagonal(1, -2, -1)[..., :7] + x.diagonal(-1, 3, 2)[..., :7],
    "roll": lambda x: x.roll((1, -2), (2, 3)), "repeat": lambda x: x.repeat(1, 2, 1, 3), "flat": lambda x: x.flatten(1) + 1,
    "interleave": lambda x: x.repeat_interleave(2, 1), "stack": lambda x: torch.stack([x, x + 1, x * 2], 1),
    "unbind": lambda x: x.unbind(1)[2] * 2, "movedim": lambda x: x.movedim(1, -1) + 1, "mT": lambda x: x.mT @ x,
    "cats": lambda x: torch.cat([x, x[:, :1], x * 2, x[:, 1:]], 1), "pixels": lambda x: functional.pixel_shuffle(x, 2) + 1,
    "shuffle": lambda x: functional.channel_shuffle(x, 2) * 2, "filled": lambda x: x.clone().fill_(2.0) + x,
    "nearest": lambda x: functional.interpolate(x, scale_factor=2), "half": lambda x: functional.interpolate(x, scale_factor=0.5),
    "nearest to": lambda x: functional.interpolate(x, size=(9, 10)),
    "bilinear": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "sampled": lambda x: functional.grid_sample(x, 0.9 * torch.tanh(x[:, :2].permute(0, 2, 3, 1)), align_corners=False),
    "corners": lambda x: functional.interpolate(x, size=(5, 12), mode="bilinear", align_corners=True),
}  # fmt: skip
WINDOWS: dict[str, Made] = {
    "ceil max": lambda x: functional.max_pool2d(x, 2, 2, ceil_mode=True), "one image": lambda x: functional.max_pool2d(x[0], 2),
    "ceil mean": lambda x: functional.avg_pool2d(x, 3, 2, 1, True),
    "divisor": lambda x: functional.avg_pool2d(x, 2, divisor_override=3),
    "without padding": lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "adaptive": lambda x: functional.adaptive_avg_pool2d(x, (3, 4)), "largest": lambda x: functional.adaptive_max_pool2d(x, 1),
    "largest of odd windows": lambda x: functional.adaptive_max_pool2d(x, (3, 2)),
}  # fmt: skip
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...]]] = {
    "transposed": (lambda: nn.ConvTranspose2d(4, 3, 3, 2, 1, 1), (IMAGE,)),
    "transposed apart": (lambda: nn.ConvTranspose2d(4, 3, 2, 2), (IMAGE,)),
    "transposed in groups": (lambda: nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), (0, 1), groups=2, dilation=2), (IMAGE,)),
    "transposed to zeros": (lambda: nn.ConvTranspose2d(4, 3, (2, 3), (3, 2), (1, 0), (1, 0), dilation=(1, 2)), (IMAGE,)),
    "transposed pixel": (lambda: nn.ConvTranspose2d(2, 2, 3, (3, 1), 1, (2, 0), 1, True, (2, 1)), ((2, 2, 1, 3),)),
    "transposed signal": (lambda: nn.ConvTranspose1d(4, 3, 4, 2, 1), (SIGNAL,)),
    "signal": (lambda: nn.Conv1d(4, 6, 3, 2, 1, groups=2), (SIGNAL,)),
    "same": (lambda: nn.Conv2d(4, 3, (2, 3), padding="same"), (IMAGE,)),
    "reflected": (lambda: nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect"), (IMAGE,)),
    "pooled signal": (lambda: nn.Sequential(nn.MaxPool1d(2), nn.AvgPool1d(2)), (SIGNAL,)),
    "groups": (lambda: nn.GroupNorm(2, 4), (IMAGE,)),
    "instances": (lambda: nn.InstanceNorm2d(4, affine=True), (IMAGE,)),
    "rms": (lambda: nn.RMSNorm(8), (ROWS,)),
    "prelu": (lambda: nn.PReLU(4), (IMAGE,)),
    "weights of norm 1": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 3)), (ROWS,)),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (ROWS,)),
    "decoder": (lambda: nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True), (ROWS, ROWS)),
    "of two": (lambda: Of(nn.Bilinear(8, 8, 3)), (ROWS, ROWS)),
    "bilinear": (lambda: Of(lambda x, y: torch.einsum("bik,bjk->bij", x, y).sum(-1)), (ROWS, ROWS)),
    "vectors": (lambda: Of(lambda x, y: (x @ y).matmul(x[0, :, 0]) + torch.outer(y, y).sum()), (ROWS, (8,))),
    "scaled": (lambda: Of(lambda x, y: torch.baddbmm(x, x, y, beta=0.5, alpha=2)), ((2, 5, 5), (2, 5, 5))),
    "shared heads": (
        lambda: Of(lambda q, k: functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)),
        ((2, 4, 5, 6), (2, 2, 5, 6))),
}  # fmt: skip
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...]]] = {
    **{name: (lambda made=made: Of(made), (IMAGE,)) for name, made in {**MAPS, **REDUCTIONS, **MOVES, **WINDOWS}.items()},
    **MODULES,
}  # fmt: skip


DEFAULT = (
    "softplus", "clamp", "var", "var by default", "cumprod", "remainder", "pad", "assigned", "roll", "cats", "nearest to",
    "corners", "without padding", "transposed in groups", "signal", "instances", "vectors", "shared heads",
)  # fmt: skip
"""One of each kind; the others are made of the same."""


@pytest.mark.parametrize("name", thorough_but(CASES, *DEFAULT))
def test_against_torch(name: str) -> None:
    torch.manual_seed(0)
    module, shapes = CASES[name]
    check(module(), *shapes, dtype=torch.float32 if name == "corners" else torch.float64)


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_kernels_against_torch(name: str) -> None:
    torch.manual_seed(0)
    made, shapes = CASES[name]
    module, inputs = made().eval(), [torch.randn(shape) for shape in shapes]
    plan = cut_all(folded(from_torch(module, inputs)))
    networks.check(NetworkFunction(plan, networks.kernels_of(plan, 0, 0), 1), module, inputs, rtol=5e-4, atol=5e-5)


VOLUME = (1, 4, 3, 3, 3)


@pytest.mark.parametrize(
    ("made", "shape", "said"),
    [
        (lambda: Of(lambda x: torch.sort(x)[0]), (2, 129), "aten.sort.*129 elements in order: expected at most 128"),
        (lambda: Of(lambda x: x[x > 0].sum()), ROWS, "the module: aten.index.Tensor: elements by a mask"),
        (lambda: Of(lambda x: x.masked_select(x > 0).sum()), ROWS, "the module: aten.masked_select.*as many elements"),
        (lambda: Of(lambda x: x.mode(1)[0]), ROWS, "aten.mode"),
        (lambda: Of(lambda x: torch.fft.fft(x).exp().real), ROWS, "aten.exp.default: has no kernels here for complex numbers"),
    ],
)
def test_what_is_not_covered_is_named(made: Callable[[], nn.Module], shape: tuple[int, ...], said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        from_torch(made().eval(), [torch.randn(shape)])
