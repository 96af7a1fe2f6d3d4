"""Volumes, images with a depth: torch's numbers in float64, and kernels for every piece."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.plan import cut_all
from tests.frontends.test_torch_export import Of, check
from tests.support import networks
from tests.support.thorough import thorough_but

VOLUME = (2, 4, 5, 7, 6)
CASES: dict[str, Callable[[], nn.Module]] = {
    "windows": lambda: nn.Conv3d(4, 6, 3, padding=1),
    "strides": lambda: nn.Conv3d(4, 6, (3, 1, 2), (2, 1, 3), (1, 0, 1), groups=2),
    "dilation": lambda: nn.Conv3d(4, 3, (2, 3, 3), dilation=(3, 1, 2), bias=False),
    "same": lambda: nn.Conv3d(4, 3, (2, 3, 4), padding="same"),
    "one element": lambda: nn.Conv3d(4, 5, 1),
    "depthwise": lambda: nn.Conv3d(4, 8, 3, groups=4),
    "largest": lambda: nn.MaxPool3d((2, 3, 2), padding=(1, 1, 0)),
    "ceil": lambda: nn.MaxPool3d(2, ceil_mode=True),
    "means": lambda: nn.AvgPool3d((3, 2, 2), (1, 2, 2), (1, 0, 1)),
    "without padding": lambda: nn.AvgPool3d(3, 2, 1, count_include_pad=False),
    "a divisor of their own": lambda: nn.AvgPool3d(3, 2, 1, divisor_override=5),
    "all": lambda: nn.AdaptiveAvgPool3d(1),
    "adaptive": lambda: nn.AdaptiveAvgPool3d((2, None, 3)),
    "one volume": lambda: Of(lambda x: functional.max_pool3d(x[0], 2)),
    "norm": lambda: nn.Sequential(nn.Conv3d(4, 6, 3), nn.BatchNorm3d(6), nn.ReLU()),
}


@pytest.mark.parametrize(
    "name", thorough_but(CASES, "strides", "dilation", "largest", "without padding", "a divisor of their own", "adaptive")
)
def test_against_torch(name: str) -> None:
    torch.manual_seed(0)
    check(CASES[name](), VOLUME)


@pytest.mark.parametrize("name", thorough_but(CASES, "strides"))
def test_kernels_against_torch(name: str) -> None:
    torch.manual_seed(0)
    module, inputs = CASES[name]().eval(), [torch.randn(VOLUME)]
    plan = cut_all(folded(from_torch(module, inputs)))
    networks.check(NetworkFunction(plan, networks.kernels_of(plan, 0, 0), 1), module, inputs, rtol=5e-4, atol=5e-5)
