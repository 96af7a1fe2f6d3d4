"""Random legal plans, with every kind of anchor and with loops, natively under the compiler's sanitizers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.export import export_network
from gensor_gym.networks.folding import folded
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan, cut_all
from tests.networks import test_loops, test_plans
from tests.networks.test_networks_run import kernels_of
from tests.support.exports import sanitized
from tests.support.random_modules import Draw

MEMORY = "-fsanitize=address,undefined"
THOROUGH = 24
"""Plans that are thorough; the others are slow."""
CASES = [pytest.param(seed, marks=pytest.mark.thorough if seed < THOROUGH else pytest.mark.slow) for seed in range(200)]


def network_of(seed: int) -> Network:
    """Rows, attention, or a module of layers that fit one another."""
    if seed % 3 == 2:
        drawn = Draw(seed)
        return folded(from_torch(drawn.module, drawn.inputs))
    return (test_plans.attention if seed % 3 else test_loops.drawn)(seed)[2]


def plan_of(network: Network, seed: int) -> Plan:
    """After one to five random decisions; every second has loops where it can."""
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(1, 6))
    return test_loops.chain(cut_all(network), rng, steps) if seed % 2 else test_plans.walked(cut_all(network), rng, steps)


@pytest.mark.parametrize("seed", CASES)
def test_sanitizers_find_nothing(seed: int, tmp_path: Path) -> None:
    network = network_of(seed)
    plan = plan_of(network, seed)
    kernels = kernels_of(plan, seed)
    function = NetworkFunction(plan, kernels, 2, ("hot", "whole", "none")[seed % 3])
    export_network(plan, kernels, function, tmp_path / "made", 2, [{}] * len(kernels), "gensor_network")
    assert sanitized(tmp_path / "made", "example.c", MEMORY) == ""
