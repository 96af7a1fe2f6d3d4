"""Attention in networks on a GPU: one kernel a layer, right in the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from agents.modules import compile_module  # noqa: E402
from agents.networks import CompiledNetwork  # noqa: E402
from gensor_gym import hardware  # noqa: E402
from gensor_gym.chains.chain import chain_of  # noqa: E402
from gensor_gym.frontends.torch_export import from_torch  # noqa: E402
from gensor_gym.networks.folding import folded  # noqa: E402
from gensor_gym.networks.fusion.fine import fine  # noqa: E402
from tests.support.thorough import thorough_but  # noqa: E402

nn = torch.nn
ROWS, SIZE = 40, 16


class Attention(nn.Module):
    """Self-attention of 8 heads, whose keys and values are those of `own` heads."""

    def __init__(self, own: int, causal: bool) -> None:
        super().__init__()
        self.own, self.causal = own, causal
        self.queries, self.others = nn.Linear(64, 8 * SIZE), nn.Linear(64, 2 * own * SIZE)
        self.out = nn.Linear(8 * SIZE, 64)

    def forward(self, x: Any) -> Any:
        q, others = self.queries(x), self.others(x)
        heads = (one.view(1, ROWS, -1, SIZE).transpose(1, 2) for one in (q, *others.chunk(2, -1)))
        made = nn.functional.scaled_dot_product_attention(*heads, is_causal=self.causal, enable_gqa=self.own < 8)
        return self.out(made.transpose(1, 2).reshape(1, ROWS, 8 * SIZE))


def compiled(own: int, causal: bool, dtype: Any, backend: str) -> tuple[CompiledNetwork, Any]:
    """(network, input), for an H100."""
    torch.manual_seed(0)
    module, x = Attention(own, causal).eval().to(dtype), torch.randn(1, ROWS, 64, dtype=dtype)
    return compile_module(module, (x,), hardware="h100", backend=backend, trials=1, reuse=False), x


@pytest.mark.parametrize(("own", "causal"), thorough_but([(8, False), (8, True), (2, True)], (2, True)))
def test_attention_is_one_kernel_and_right(own: int, causal: bool) -> None:
    """Between the linear layers no kernel is left, nor a copy of the keys for each head."""
    network, x = compiled(own, causal, torch.bfloat16, "emulated")
    assert ["gg_chain" in kernel.source for kernel in network.kernels] == [False, False, True, False]
    (expected,) = network.plan.network.reference(x.view(torch.uint16).numpy())
    found = network(x).to(torch.float64).numpy()
    assert (np.abs(found - expected.value) <= expected.error).all()


def test_one_query_of_many_keys_stays_apart() -> None:
    """A block for each head would leave most of the GPU idle; with as many queries the chain is taken."""

    class Cached(nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return nn.functional.scaled_dot_product_attention(q, k, v)

    for rows, together in ((1, False), (128, True)):
        given = [torch.randn(1, 16, length, 64, dtype=torch.bfloat16) for length in (rows, 4096, 4096)]
        plan = fine(folded(from_torch(Cached().eval(), given)), hardware.get("h100"))
        assert any(piece.anchor == "block" for piece in plan.pieces) == together


def test_attention_of_float32_is_several_kernels() -> None:
    """Tensor cores would round its numbers."""
    network, _ = compiled(8, True, torch.float32, "analytic")
    assert len(network.kernels) > 4 and not any("gg_chain" in kernel.source for kernel in network.kernels)


class Masked(nn.Module):
    """Attention with a causal mask as modules write it."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.register_buffer("seen", torch.tril(torch.ones(ROWS, ROWS)).view(1, 1, ROWS, ROWS))

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        rows, scores = torch.arange(ROWS), 0.25 * (q @ k.transpose(-2, -1))
        match self.form:
            case "buffer":
                return scores.masked_fill(self.seen == 0, -torch.inf).softmax(-1) @ v
            case "added":
                return (scores + torch.full((ROWS, ROWS), torch.finfo(q.dtype).min, dtype=q.dtype).triu(1)).softmax(-1) @ v
        seen = rows[None, :] <= rows[:, None]
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


@pytest.mark.parametrize("form", thorough_but(["buffer", "added", "compared"], "added", "compared"))
def test_causal_masks_are_recognised(form: str) -> None:
    given = [torch.randn(1, 4, ROWS, SIZE).bfloat16() for _ in range(3)]
    plan = fine(folded(from_torch(Masked(form).eval(), given)), hardware.get("host"))
    (chain,) = (chain_of(piece.step(plan.network).computation) for piece in plan.pieces if piece.anchor == "block")
    assert chain.diagonal == 0


@pytest.mark.parametrize("mask", thorough_but([-1e4, -1e30, -3.3895e38], -1e30, -3.3895e38))
def test_large_masks_give_what_torch_gives(mask: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first tile of keys and a whole element masked by a large number: a product of it with log2(e) is off, or overflows."""

    class Padded(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
            scores = (q @ k.transpose(-1, -2)) * 0.25 + (1.0 - kept[:, None, None, :]) * mask
            return scores.softmax(-1) @ v

    monkeypatch.setattr("gensor_gym.networks.fusion.fine.APART", 1e9)
    monkeypatch.setattr("gensor_gym.networks.fusion.fine.LEAST_TASKS", 0)
    torch.manual_seed(0)
    kept = torch.ones(2, 150)
    kept[0, :128], kept[1] = 0, 0
    given = *(torch.randn(2, 2, rows, 16).bfloat16() for rows in (20, 150, 150)), kept.bfloat16()
    compiled = compile_module(Padded().eval(), given, hardware="h100", backend="emulated", trials=1, reuse=False)
    assert len(compiled.kernels) == 1
    exact = Padded()(*(one.double() for one in given))
    errors = [float((made.double() - exact).abs().max()) for made in (compiled(*given), Padded()(*given))]
    assert errors[0] <= 2.0 * errors[1]
