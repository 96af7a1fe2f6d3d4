"""The model of chains: what was measured of rows that meet in few sets of a cache."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from gensor_gym.chains.graph import ChainGraph
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.fine import fine
from tests.frontends.test_torch_export import Of
from tests.support.c_cases import machine


def test_rows_that_fill_their_share_of_a_cache_are_better_copied() -> None:
    """Attention over heads side by side in rows 4 KB apart, as many as fill three quarters of a way of each set."""
    hw = machine(16)
    rows = int(0.75 * hw.level("l2").capacity) // 4096

    def heads(*given: torch.Tensor) -> torch.Tensor:
        q, k, v = (one.view(1, rows, 8, 128).transpose(1, 2) for one in given)
        return scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, rows, 1024)

    (step,) = fine(folded(from_torch(Of(heads).eval(), [torch.randn(1, rows, 1024) for _ in range(3)]))).steps
    assert isinstance(step.computation, Dataflow)
    graph = ChainGraph(step.computation, hw)
    words = "vector=16 height=6 first=4 second=4 block=24 loop=16 depth=0 rows=4 tile=1 copy="
    in_place, copied = (graph.latency(graph.parse(f"{words}{copy}")) for copy in (0, 1))
    assert in_place > 1.2 * copied
