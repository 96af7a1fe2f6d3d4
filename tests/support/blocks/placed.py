"""Blocks that compute places, positions and masks at each call, as their authors write them, small."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Inputs = Callable[[int], tuple[Tensor, ...]]


class Experts(nn.Module):
    """A mixture of experts, the two best of four for each token, computed densely."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4, bias=False)
        self.up, self.down = nn.Parameter(torch.randn(4, 8, 12) * 0.3), nn.Parameter(torch.randn(4, 12, 8) * 0.3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        logits = self.router(x)
        weights, chosen = torch.topk(functional.softmax(logits, dim=-1), 2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        gates = torch.zeros_like(logits).scatter(-1, chosen, weights)
        hidden = functional.silu(torch.einsum("btc,ech->beth", x, self.up))
        made = torch.einsum("beth,ehc->betc", hidden, self.down)
        return {"hidden_states": (made * gates.permute(0, 2, 1)[..., None]).sum(1) + x, "router_logits": logits}


class Grouped(nn.Module):
    """Attention of four heads on two of keys, whose rotary positions are rows of tables by ids; RMS norm by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(16, 16, False), nn.Linear(16, 16, False), nn.Linear(16, 16, False)
        angles = torch.outer(torch.arange(12).float(), 1e4 ** -(torch.arange(0, 4, 2).float() / 4))
        self.weight = nn.Parameter(torch.rand(16))
        for name, one in (("cos", angles.cos()), ("sin", angles.sin())):
            self.register_buffer(name, torch.cat([one, one], -1), persistent=False)

    def turned(self, x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)  # type: ignore[index]
        return x * cos + torch.cat((-x[..., 2:], x[..., :2]), -1) * sin

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        batch, rows, _ = x.shape
        y = self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        q = self.turned(self.q(y).view(batch, rows, 4, 4).transpose(1, 2), positions)
        k, v = self.kv(y).view(batch, rows, 2, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        k = self.turned(k, positions).repeat_interleave(2, dim=1)
        v = v[:, :, None].expand(batch, 2, 2, rows, 4).reshape(batch, 4, rows, 4)
        made = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(made.transpose(1, 2).reshape(batch, rows, 16))


class Alibi(nn.Module):
    """Attention with a slope of distance for each head, and padding that is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.register = nn.Linear(12, 36), nn.Parameter(torch.randn(1, 1, 12))

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        x = torch.cat([self.register.expand(x.shape[0], -1, -1), x], 1)
        seen = functional.pad(seen, (1, 0), value=True)
        rows = x.shape[1]
        slopes = torch.tensor([2.0 ** -(8 * (head + 1) / 3) for head in range(3)])
        places = torch.arange(rows)
        bias = -(places[None, :] - places[:, None]).abs() * slopes[:, None, None]
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k, v = (one.unflatten(-1, (3, 4)).transpose(1, 2) for one in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(4) + bias
        scores = scores.masked_fill(~seen[:, None, None, :], torch.finfo(scores.dtype).min)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Timed(nn.Module):
    """A residual block of a diffusion network: sines of the time scale and shift a group norm."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.one, self.two = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.skip = nn.GroupNorm(2, 8), nn.Conv2d(4, 8, 1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        angles = t[:, None].float() * torch.exp(-math.log(1e4) * torch.arange(4) / 4)[None]
        waves = torch.cat([angles.sin(), angles.cos()], -1).to(self.two.weight.dtype)
        scale, shift = self.time(waves)[..., None, None].chunk(2, 1)
        made = functional.silu(self.norm(self.one(x)) * (1 + scale) + shift)
        return self.two(made) + self.skip(x)


class Pooled(nn.Module):
    """Text as CLIP pools it: the row of the largest id, projected and of norm 1, times a scale that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(20, 8), nn.Embedding(6, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, nn.GELU(), batch_first=True, norm_first=True)
        self.text, self.scale = nn.Parameter(torch.randn(8, 5)), nn.Parameter(torch.tensor(2.6))

    def forward(self, ids: Tensor) -> dict[str, Any]:
        x = self.words(ids) + self.positions(torch.arange(ids.shape[-1], device=ids.device))
        x = self.layer(x)
        pooled = x[torch.arange(x.shape[0]), ids.argmax(dim=-1)] @ self.text
        pooled = pooled / pooled.norm(dim=1, keepdim=True)
        return {"pooled": pooled, "last_hidden_state": x, "logits": self.scale.exp() * pooled @ pooled.t(), "attentions": None}


class Codebook(nn.Module):
    """Each place of an image becomes the nearest of some vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Embedding(9, 4)

    def forward(self, z: Tensor) -> Tensor:
        flat = z.permute(0, 2, 3, 1).reshape(-1, 4)
        apart = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.codes.weight.t() + self.codes.weight.pow(2).sum(1)
        chosen = self.codes(apart.argmin(1)).view(z.shape[0], z.shape[2], z.shape[3], 4)
        return chosen.permute(0, 3, 1, 2) + (z - z.detach())


class Interactions(nn.Module):
    """Clicks as DLRM tells them: embeddings of several tables, and their products with one another below the diagonal."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(size, 6, mode="sum") for size in (7, 11, 5))
        self.below, self.above = nn.Sequential(nn.Linear(3, 6), nn.ReLU()), nn.Sequential(nn.Linear(12, 1), nn.Sigmoid())

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        x = self.below(numbers)
        rows = torch.stack([x, *(table(ids[:, place]) for place, table in enumerate(self.tables))], 1)
        products = torch.bmm(rows, rows.transpose(1, 2))
        one, other = torch.tril_indices(4, 4, offset=-1)
        return self.above(torch.cat([x, products[:, one, other]], 1)).squeeze(-1)


class Cosine(nn.Module):
    """Attention of Swin, second version: cosines with a scale that is capped, and a bias by distances in logarithms."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.scale = nn.Linear(8, 24, bias=False), nn.Parameter(torch.log(10 * torch.ones(2, 1, 1)))
        self.bias = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2, bias=False))
        steps = torch.arange(-2, 3).float()
        table = torch.stack(torch.meshgrid(steps, steps, indexing="ij"), -1) * 4
        self.register_buffer("table", table.sign() * torch.log2(table.abs() + 1.0) / 3)
        places = torch.stack(torch.meshgrid(torch.arange(3), torch.arange(3), indexing="ij")).flatten(1)
        apart = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0) + 2
        self.register_buffer("number", apart[..., 0] * 5 + apart[..., 1])

    def forward(self, x: Tensor) -> Tensor:
        batch, rows, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, rows, 3, 2, -1).permute(2, 0, 3, 1, 4)
        attention = functional.normalize(q, dim=-1) @ functional.normalize(k, dim=-1).transpose(-2, -1)
        attention = attention * torch.clamp(self.scale, max=math.log(100.0)).exp()
        bias = self.bias(self.table).view(-1, 2)[self.number.view(-1)].view(rows, rows, -1)  # type: ignore[operator]
        attention = attention + 16 * torch.sigmoid(bias.permute(2, 0, 1).contiguous())
        return (attention.softmax(-1) @ v).transpose(1, 2).reshape(batch, rows, width)


class Queries(nn.Module):
    """The best three places of a map, and boxes at them, refined where an inverse sigmoid puts them."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.box, self.refine = nn.Linear(8, 5), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        memory = x.flatten(2).transpose(1, 2)
        best = torch.topk(self.score(memory).max(-1).values, 3, dim=1).indices
        rows = torch.gather(memory, 1, best.unsqueeze(-1).repeat(1, 1, 8))
        boxes = torch.gather(self.box(memory).sigmoid(), 1, best.unsqueeze(-1).expand(-1, -1, 4))
        boxes = boxes.clamp(1e-5, 1 - 1e-5)
        return (self.refine(rows) + torch.log(boxes / (1 - boxes))).sigmoid(), rows


class Scanned(nn.Module):
    """Gated rows after a causal convolution of each channel, as state-space models begin; the mean of those that count."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(6, 24), nn.Linear(12, 6)
        self.along = nn.Conv1d(12, 12, 4, groups=12, padding=3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        made, gate = self.wide(x).chunk(2, dim=-1)
        made = self.along(made.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        y = self.narrow(functional.silu(made) * functional.silu(gate))
        counts = torch.arange(x.shape[1])[None] < lengths[:, None]
        mean = (y * counts.unsqueeze(-1)).sum(1) / counts.sum(1, keepdim=True).clamp(min=1e-9)
        last = y[torch.arange(y.shape[0]), lengths - 1]
        return functional.normalize(torch.cat([mean, last], -1), p=2, dim=1)


def _ids(most: int, *shape: int) -> Tensor:
    return torch.randint(most, shape)


PLACED: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "experts": (Experts, lambda n: (torch.randn(n, 5, 8),)),
    "grouped": (Grouped, lambda n: (torch.randn(n, 6, 16), _ids(12, n, 6))),
    "alibi": (Alibi, lambda n: (torch.randn(n, 5, 12), torch.rand(n, 5) < 0.7)),
    "timed": (Timed, lambda n: (torch.randn(n, 4, 6, 6), _ids(1000, n))),
    "pooled": (Pooled, lambda n: (_ids(20, n, 6),)),
    "codebook": (Codebook, lambda n: (torch.randn(n, 4, 3, 5),)),
    "interactions": (Interactions, lambda n: (torch.randn(n, 3), _ids(5, n, 3, 2))),
    "cosine": (Cosine, lambda n: (torch.randn(n, 9, 8),)),
    "queries": (Queries, lambda n: (torch.randn(n, 8, 3, 4),)),
    "lstm": (lambda: nn.LSTM(6, 4, num_layers=2, batch_first=True), lambda n: (torch.randn(n, 5, 6),)),
    "gru": (lambda: nn.GRU(6, 4, bidirectional=True), lambda n: (torch.randn(5, n, 6),)),
    "projected": (lambda: nn.LSTM(6, 8, bidirectional=True, bias=False, proj_size=3), lambda n: (torch.randn(4, n, 6),)),
    "elman": (lambda: nn.RNN(6, 4, num_layers=2, nonlinearity="relu"), lambda n: (torch.randn(4, n, 6),)),
    "scanned": (Scanned, lambda n: (torch.randn(n, 7, 6), _ids(7, n) + 1)),
}
"""Name -> (what builds it, inputs of a batch)."""
