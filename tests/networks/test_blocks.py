"""Blocks as users write them: torch's numbers by kernels for every piece, parts of joins in place."""

from __future__ import annotations

import pytest
import torch

from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.fine import fine
from gensor_gym.networks.load import NetworkFunction
from tests.support.blocks import BLOCKS, batched
from tests.support.networks import check, kernels_of
from tests.support.thorough import thorough_but


def check_block(name: str, batch: int, seed: int = 0, walk: int = 0) -> None:
    torch.manual_seed(seed)
    build, shapes = BLOCKS[name]
    module = build().eval()
    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            torch.nn.init.normal_(part.running_mean)  # type: ignore[arg-type]
            torch.nn.init.uniform_(part.running_var, 0.5, 2.0)  # type: ignore[arg-type]
    inputs = [torch.randn(shape) for shape in (shapes if batch == 1 else batched(shapes))]
    plan = fine(folded(from_torch(module, inputs)))
    function = NetworkFunction(plan, kernels_of(plan, seed, walk), 1 + seed % 2)
    check(function, module, inputs, rtol=5e-4, atol=5e-5)


@pytest.mark.parametrize("name", thorough_but(BLOCKS, "repeated_join", "detection_head"))
def test_of_one(name: str) -> None:
    check_block(name, 1)


@pytest.mark.thorough
@pytest.mark.parametrize("name", BLOCKS)
def test_of_two_with_random_schedules(name: str) -> None:
    check_block(name, 2, seed=1, walk=6)
