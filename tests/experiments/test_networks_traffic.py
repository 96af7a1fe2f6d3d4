"""Bytes that a call brings into a cache, of a small network."""

from __future__ import annotations

import torch

from experiments.benches.networks.traffic import PIECE, traffic
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.fusion.rules import plan_of


class Chain(torch.nn.Module):
    """Three kernels one after another, values of four pieces each."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sums along the last axis between make them kernels of their own."""
        for _ in range(3):
            x = torch.relu(x - x.sum(-1, keepdim=True))
        return x


def test_memory_that_is_used_again_is_still_in_a_cache_that_holds_it() -> None:
    plan = plan_of(from_torch(Chain().eval(), (torch.randn(4, 1024),)), "cut_all")
    everything = sum(value.nbytes for value in plan.network.graph.values.values()) + 64 * PIECE
    for mode in ("none", "hot"):
        assert sum(traffic(plan, mode, everything).values()) == 0
    small = {mode: traffic(plan, mode, 12 * PIECE)["written"] for mode in ("none", "hot")}
    assert small["hot"] < small["none"]
    values = plan.network.graph.values
    touched = sum(-(-values[name].nbytes // PIECE) for step in plan.steps for name in (*step.reads, *step.writes))
    assert sum(traffic(plan, "hot", PIECE).values()) == touched * PIECE
