"""Blocks of networks of tokens and signals."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from tests.support.blocks.parts import Of


class Vit(nn.Module):
    """ViT (arXiv 2010.11929): patches, a token of the class, positions, blocks, the class's logits."""

    def __init__(self, width: int = 16, heads: int = 2, patch: int = 4, size: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 1 + (size // patch) ** 2, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.heads, self.head = heads, nn.Linear(width, 5)

    def attention(self, x: Tensor) -> Tensor:
        """As timm has it: queries, keys and values of one product."""
        n, rows, width = x.shape
        q, k, v = self.qkv(x).reshape(n, rows, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(f.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, rows, width))

    def forward(self, x: Tensor) -> Tensor:
        """Of images."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.positions
        x = x + self.attention(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return self.head(x[:, 0])


class Swin(nn.Module):
    """Attention within shifted windows, with a bias of relative positions (arXiv 2103.14030)."""

    def __init__(self, c: int = 8, heads: int = 2, window: int = 4, shift: int = 2) -> None:
        super().__init__()
        self.qkv, self.out, self.heads, self.window, self.shift = nn.Linear(c, 3 * c), nn.Linear(c, c), heads, window, shift
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads))
        places = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        relative = (places[:, :, None] - places[:, None]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", relative[..., 0] * (2 * window - 1) + relative[..., 1])

    def forward(self, x: Tensor) -> Tensor:
        """Of [n, h, w, c]."""
        n, h, w, c = x.shape
        s, rows = self.window, self.window**2
        x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        x = x.view(n, h // s, s, w // s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, rows, c)
        q, k, v = self.qkv(x).reshape(-1, rows, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        bias = self.table[self.index.view(-1)].view(rows, rows, -1).permute(2, 0, 1)
        x = ((q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1) + bias[None]).softmax(-1) @ v
        x = self.out(x.transpose(1, 2).reshape(-1, rows, c))
        x = x.view(n, h // s, w // s, s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        return torch.roll(x, (self.shift, self.shift), (1, 2))


def patch_merging(c: int = 4) -> nn.Module:
    """Swin's way down: every second pixel, four times, side by side."""

    def forward(p: nn.ModuleDict, x: Tensor) -> Tensor:
        parts = (x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2])
        return p.down(p.norm(torch.cat(parts, -1)))

    return Of(forward, norm=nn.LayerNorm(4 * c), down=nn.Linear(4 * c, 2 * c, bias=False))


def mixer(rows: int = 6, c: int = 8) -> nn.Module:
    """MLP-Mixer (arXiv 2105.01601)."""

    def mlp(width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(p: nn.ModuleDict, x: Tensor) -> Tensor:
        x = x + p.tokens(p.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + p.channels(p.norm2(x))

    return Of(forward, tokens=mlp(rows), channels=mlp(c), norm1=nn.LayerNorm(c), norm2=nn.LayerNorm(c))


class T5(nn.Module):
    """T5 (arXiv 1910.10683): RMS norm by hand, buckets of relative positions, gated GELU."""

    def __init__(self, width: int = 16, heads: int = 2, buckets: int = 8, far: int = 16) -> None:
        super().__init__()
        self.weight, self.heads, self.buckets, self.far = nn.Parameter(torch.randn(width)), heads, buckets, far
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.bias = nn.Embedding(buckets, heads)
        self.wi0, self.wi1 = (nn.Linear(width, 24, bias=False) for _ in range(2))
        self.wo = nn.Linear(24, width, bias=False)

    def norm(self, x: Tensor) -> Tensor:
        """Without a mean."""
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def position_bias(self, rows: int) -> Tensor:
        """Of distances, near ones exactly and far ones by their logarithm."""
        apart = torch.arange(rows)[None, :] - torch.arange(rows)[:, None]
        half = self.buckets // 2
        bucket, apart = (apart > 0).long() * half, apart.abs()
        near = half // 2
        large = near + (torch.log(apart.float() / near) / math.log(self.far / near) * (half - near)).long()
        bucket = bucket + torch.where(apart < near, apart, large.clamp(max=half - 1))
        return self.bias(bucket).permute(2, 0, 1)[None]

    def forward(self, x: Tensor) -> Tensor:
        """Of [n, rows, width]."""
        n, rows, width = x.shape
        y = self.norm(x)
        q, k, v = (p(y).view(n, rows, self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        scores = q @ k.transpose(3, 2) + self.position_bias(rows)
        x = x + self.o((f.softmax(scores.float(), -1).type_as(scores) @ v).transpose(1, 2).contiguous().view(n, rows, width))
        y = self.norm(x)
        return x + self.wo(f.gelu(self.wi0(y), approximate="tanh") * self.wi1(y))


class Llama(nn.Module):
    """LLaMA's block: RMS norm, rotary positions, keys and values of before, fewer heads of these, SwiGLU."""

    def __init__(self, width: int = 16, heads: int = 4, groups: int = 2, past: int = 3) -> None:
        super().__init__()
        self.heads, self.groups, self.size, self.past = heads, groups, width // heads, past
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = nn.Linear(width, groups * self.size, bias=False), nn.Linear(width, groups * self.size, bias=False)
        self.gate, self.up = (nn.Linear(width, 24, bias=False) for _ in range(2))
        self.down = nn.Linear(24, width, bias=False)

    def turned(self, x: Tensor) -> Tensor:
        """Pairs of a half and the other, turned by their position."""
        places = torch.arange(self.past, self.past + x.shape[2]).float()
        angles = torch.outer(places, 1.0 / 10000 ** (torch.arange(0, self.size, 2).float() / self.size))
        angles = torch.cat((angles, angles), -1)
        one, other = x[..., : self.size // 2], x[..., self.size // 2 :]
        return x * angles.cos() + torch.cat((-other, one), -1) * angles.sin()

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Of [n, rows, width] and [n, groups, past, size] of before."""
        n, rows, width = x.shape
        y = self.norm1(x)
        q = self.turned(self.q(y).view(n, rows, self.heads, self.size).transpose(1, 2))
        k = self.turned(self.k(y).view(n, rows, self.groups, self.size).transpose(1, 2))
        v = self.v(y).view(n, rows, self.groups, self.size).transpose(1, 2)
        k, v = torch.cat((keys, k), 2), torch.cat((values, v), 2)
        repeats = self.heads // self.groups
        k, v = (
            one[:, :, None].expand(n, self.groups, repeats, one.shape[2], self.size).reshape(n, self.heads, -1, self.size)
            for one in (k, v)
        )
        mask = torch.full((rows, self.past + rows), float("-inf")).triu(self.past + 1)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.size) + mask
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, rows, width))
        y = self.norm2(x)
        return x + self.down(f.silu(self.gate(y)) * self.up(y))


class Rope(nn.Module):
    """Rotary positions of pairs that lie side by side, as GPT-J has them."""

    def forward(self, x: Tensor) -> Tensor:
        """Of [n, heads, rows, size]."""
        size, rows = x.shape[-1], x.shape[-2]
        angles = torch.outer(torch.arange(rows).float(), 0.1 ** torch.arange(size // 2)).repeat_interleave(2, -1)
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        return x * angles.cos() + turned * angles.sin()


class Gpt(nn.Module):
    """NanoGPT's block: queries, keys and values of one product, a mask that is a buffer."""

    def __init__(self, width: int = 16, heads: int = 2, most: int = 16) -> None:
        super().__init__()
        self.attention, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.register_buffer("mask", torch.tril(torch.ones(most, most)).view(1, 1, most, most))

    def forward(self, x: Tensor) -> Tensor:
        """Of [n, rows, width]."""
        n, rows, width = x.shape
        q, k, v = self.attention(self.norm1(x)).split(width, 2)
        q, k, v = (one.view(n, rows, self.heads, width // self.heads).transpose(1, 2) for one in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :rows, :rows] == 0, float("-inf")).softmax(-1)
        x = x + self.out((scores @ v).transpose(1, 2).contiguous().view(n, rows, width))
        return x + self.mlp(self.norm2(x))


def conformer_convolution(c: int = 8) -> nn.Module:
    """Conformer (arXiv 2005.08100): gated, depthwise along the signal."""

    def forward(p: nn.ModuleDict, x: Tensor) -> Tensor:
        y = f.glu(p.wide(p.norm(x).transpose(1, 2)), 1)
        return x + p.narrow(f.silu(p.batch(p.depthwise(y)))).transpose(1, 2)

    return Of(
        forward, norm=nn.LayerNorm(c), wide=nn.Conv1d(c, 2 * c, 1), depthwise=nn.Conv1d(c, c, 3, padding=1, groups=c),
        batch=nn.BatchNorm1d(c), narrow=nn.Conv1d(c, c, 1),
    )  # fmt: skip


def wavenet(c: int = 6) -> nn.Module:
    """Causal dilated convolutions with gates (arXiv 1609.03499)."""

    def forward(p: nn.ModuleDict, x: Tensor) -> Tensor:
        skips = []
        for number in (1, 2, 4):
            y = p[f"d{number}"](f.pad(x, (2 * number, 0)))
            y = torch.tanh(y[:, :c]) * torch.sigmoid(y[:, c:])
            skips.append(y)
            x = x + p[f"o{number}"](y)
        return p.last(torch.relu(sum(skips)))

    layers = {f"d{d}": nn.Conv1d(c, 2 * c, 3, dilation=d) for d in (1, 2, 4)}
    return Of(forward, last=nn.Conv1d(c, 3, 1), **layers, **{f"o{d}": nn.Conv1d(c, c, 1) for d in (1, 2, 4)})


def non_local(c: int = 8) -> nn.Module:
    """Attention over an image's places (arXiv 1711.07971)."""

    def forward(p: nn.ModuleDict, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        q, k, v = (p[name](x).flatten(2) for name in "qkv")
        made = (torch.bmm(q.transpose(1, 2), k).softmax(-1) @ v.transpose(1, 2)).transpose(1, 2).reshape(n, -1, h, w)
        return x + p.o(made)

    return Of(forward, q=nn.Conv2d(c, 4, 1), k=nn.Conv2d(c, 4, 1), v=nn.Conv2d(c, 4, 1), o=nn.Conv2d(4, c, 1))


def detr_decoder(c: int = 8) -> nn.Module:
    """Queries that are parameters, attention to an image (arXiv 2005.12872)."""

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.queries = nn.Parameter(torch.randn(1, 5, c))
            self.attention, self.norm = nn.MultiheadAttention(c, 2, batch_first=True), nn.LayerNorm(c)
            self.boxes = nn.Sequential(nn.Linear(c, c), nn.ReLU(), nn.Linear(c, 4), nn.Sigmoid())

        def forward(self, x: Tensor) -> Tensor:
            image = x.flatten(2).transpose(1, 2)
            queries = self.queries.expand(x.shape[0], -1, -1)
            return self.boxes(self.norm(queries + self.attention(queries, image, image)[0]))

    return Decoder()


def deep_gru_cell(c: int = 6) -> nn.Module:
    """A cell written out, three steps."""

    def forward(p: nn.ModuleDict, x: Tensor) -> Tensor:
        h, made = torch.zeros(x.shape[0], c), []
        for step in range(x.shape[1]):
            r, z = torch.sigmoid(p.gates(torch.cat((x[:, step], h), -1))).chunk(2, -1)
            h = z * h + (1 - z) * torch.tanh(p.new(torch.cat((x[:, step], r * h), -1)))
            made.append(h)
        return torch.stack(made, 1)

    return Of(forward, gates=nn.Linear(4 + c, 2 * c), new=nn.Linear(4 + c, c))
