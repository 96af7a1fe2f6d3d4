"""Moves of windows, heads and rolled rows take no kernels beside the sums, normalisations and products that read them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gensor_gym.dataflow.nodes import Concat, Gather, Slice, Transpose
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.fine import fine
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.moves.shuffles import Shuffles
from gensor_gym.networks.plan import Plan, cut_all
from tests.support.networks import check, kernels_of

SIDE, WINDOW, HEADS, WIDE = 8, 4, 2, 32


class Windows(nn.Module):
    """Attention of windows of an image [1, SIDE, SIDE, WIDE], as in Swin; of rolled windows with a shift."""

    def __init__(self, shift: int = 0, cosine: bool = False) -> None:
        super().__init__()
        self.shift, self.cosine, self.norm, self.last = shift, cosine, nn.LayerNorm(WIDE), nn.LayerNorm(WIDE)
        self.qkv, self.proj = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)
        self.register_buffer("bias", torch.randn(1, HEADS, WINDOW**2, WINDOW**2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = SIDE // WINDOW
        y = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        y = y.view(1, count, WINDOW, count, WINDOW, WIDE).permute(0, 1, 3, 2, 4, 5).reshape(-1, WINDOW**2, WIDE)
        q, k, v = self.qkv(y).reshape(-1, WINDOW**2, 3, HEADS, WIDE // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT if self.cosine else (q * 0.25) @ k.mT
        y = self.proj((torch.softmax(scores + self.bias, -1) @ v).transpose(1, 2).reshape(-1, WINDOW**2, WIDE))
        y = y.view(1, count, count, WINDOW, WINDOW, WIDE).permute(0, 1, 3, 2, 4, 5).reshape(x.shape)
        x = x + torch.roll(y, (self.shift, self.shift), (1, 2))
        return x + self.last(x)


class Grid(nn.Module):
    """Rows of windows, through an image with channels outside, to rows of a grid, as in MaxViT."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(WIDE), nn.Linear(WIDE, WIDE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = SIDE // WINDOW
        image = x.view(1, count, count, WINDOW, WINDOW, WIDE).permute(0, 5, 1, 3, 2, 4).reshape(1, WIDE, SIDE, SIDE)
        rows = image.view(1, WIDE, WINDOW, count, WINDOW, count).permute(0, 3, 5, 2, 4, 1).reshape(x.shape)
        return rows + self.last(self.norm(rows))


ROWS = (SIDE // WINDOW) ** 2, WINDOW**2, WIDE
CASES = {
    "windows": (Windows(), (1, SIDE, SIDE, WIDE), 5), "rolled": (Windows(shift=1), (1, SIDE, SIDE, WIDE), 5),
    "cosine": (Windows(shift=2, cosine=True), (1, SIDE, SIDE, WIDE), 7), "grid": (Grid(), ROWS, 2),
}  # fmt: skip
"""Name -> (module, shape of its input, number of kernels)."""


def plan_of_case(name: str) -> tuple[Plan, nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    module, shape, _ = CASES[name]
    x = torch.randn(shape)
    return fine(folded(from_torch(module.eval(), [x]))), module, x


@pytest.mark.parametrize("name", CASES)
def test_moves_take_no_kernels(name: str) -> None:
    plan, module, x = plan_of_case(name)
    kinds = [{type(plan.network.nodes[node]) for node in piece.nodes} for piece in plan.pieces]
    assert len(kinds) == CASES[name][2] and not any(kind <= {Transpose, Slice, Concat, Gather} for kind in kinds)
    for seed in range(2):
        check(NetworkFunction(plan, kernels_of(plan, seed), 1), module, [x])


@pytest.mark.parametrize("name", ["windows", "rolled", "grid"])
def test_wrong_rows_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of the neighbouring row give another answer than torch's."""
    monkeypatch.setattr("gensor_gym.networks.moves.shuffles._rows_moved", lambda *given: _next(*given))
    plan, module, x = plan_of_case(name)
    with pytest.raises(AssertionError):
        check(NetworkFunction(plan, kernels_of(plan, 0, 0), 1), module, [x])


def _next(graph, name, source):  # type: ignore[no-untyped-def]
    from gensor_gym.networks.moves import shuffles

    rows = graph.values[name].size // graph.values[name].shape[-1]
    return (shuffles.np.arange(rows, dtype="int32") + 1) % rows


def test_what_is_no_shuffle_of_rows_stays() -> None:
    """Channels that change places, and a join of two values, are not gathered."""

    def shuffled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        channels = torch.roll(x, 1, -1)
        return torch.cat([channels, y], 0) + 1

    class Module(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return shuffled(x, y)

    network = from_torch(Module().eval(), [torch.randn(6, 32), torch.randn(2, 32)])
    assert not Shuffles(network.graph).ids and not any(isinstance(node, Gather) for node in folded(network).nodes.values())


def test_rows_are_not_computed_again() -> None:
    """Rows join what they read if their loops have as many points, or compute it once a row; else they stay apart."""

    class Module(nn.Module):
        def forward(self, x: torch.Tensor, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(column) * x + torch.erf(row)

    network = folded(from_torch(Module().eval(), [torch.randn(9, 33), torch.randn(1, 33), torch.randn(9, 1)]))
    whole, joined = ([{*piece.nodes} for piece in plan.pieces] for plan in (cut_all(network), fine(network)))
    assert len(whole) == 4 and len(joined) == 2
    assert all(len(piece) == 1 for piece in joined if any("erf" in node for node in piece))
