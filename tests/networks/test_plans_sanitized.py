"""Random legal plans, with every kind of anchor and with loops, and random orders of images: right, also under sanitizers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gensor_gym import hardware
from gensor_gym.codegen.export import library
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.export import export_network
from gensor_gym.networks.folding import folded
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.network import Network
from gensor_gym.networks.orders.choice import classes_of
from gensor_gym.networks.orders.rewrite import ordered
from gensor_gym.networks.plan import Plan, cut_all
from tests.networks import test_loops, test_orders_chosen, test_plans
from tests.support.exports import sanitized
from tests.support.networks import check, kernels_of
from tests.support.random_modules import Draw

MEMORY = "-fsanitize=address,undefined"
THOROUGH = 40
"""Plans that are thorough; the others are slow: two seconds each."""
CASES = [pytest.param(seed, marks=pytest.mark.thorough if seed < THOROUGH else pytest.mark.slow) for seed in range(200)]


def case(seed: int) -> tuple[nn.Module, Sequence[torch.Tensor], Network]:
    """Rows, attention, or a module of layers that fit one another; inputs; the network."""
    if seed % 3 == 2:
        drawn = Draw(seed)
        return drawn.module, drawn.inputs, folded(from_torch(drawn.module, drawn.inputs))
    module, x, network = (test_plans.attention if seed % 3 else test_loops.drawn)(seed)
    return module, [x], network


def plan_of(network: Network, seed: int) -> Plan:
    """After one to five random decisions; every second has loops where it can."""
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(1, 6))
    return test_loops.chain(cut_all(network), rng, steps) if seed % 2 else test_plans.walked(cut_all(network), rng, steps)


def found_under_sanitizers(plan: Plan, module: nn.Module, inputs: Sequence[torch.Tensor], seed: int, folder: Path) -> str:
    """What sanitizers find in an exported network of random kernels, whose results are right; empty where they find nothing."""
    kernels = kernels_of(plan, seed)
    function = NetworkFunction(plan, kernels, 2, ("hot", "whole", "none")[seed % 3])
    check(function, module, inputs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "_build", lambda *_: None)  # the sources are compiled once, with sanitizers
        export_network(plan, kernels, function, folder, 2, [{}] * len(kernels), "gensor_network")
    return sanitized(folder, "example.c", MEMORY, ["-O0"])


@pytest.mark.parametrize("seed", CASES)
def test_random_plans_are_right_and_sanitizers_find_nothing(seed: int, tmp_path: Path) -> None:
    module, inputs, network = case(seed)
    assert not found_under_sanitizers(plan_of(network, seed), module, inputs, seed, tmp_path / "made")


@pytest.mark.parametrize("seed", CASES)
def test_random_orders_are_right_and_sanitizers_find_nothing(seed: int, tmp_path: Path) -> None:
    """Every second network may use Winograd's algorithm."""
    module, x = test_orders_chosen.module_of(seed)
    host, old = hardware.get("host"), folded(from_torch(module, (x,)))
    rng = np.random.default_rng(seed)
    last = frozenset(chain(*(uses.members for uses in classes_of(old, host) if rng.random() < 0.7)))
    made = ordered(old, host, last, winograd=seed % 2 == 1)
    assert not found_under_sanitizers(cut_all(made), module, (x,), seed, tmp_path / "made")
