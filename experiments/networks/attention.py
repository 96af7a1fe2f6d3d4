"""Attention: BERT's encoder (Devlin et al., arXiv 1810.04805), GPT-2's blocks, and oneDNN Graph Compiler's MHA and MLP."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class Attention(nn.Module):
    """Self-attention module with one linear layer for query, key and value together, as in BERT and GPT-2."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        """Apply self-attention to tokens x [batch, rows, width]; `seen` masks the visible tokens, bool [batch, 1, 1, rows]."""
        batch, rows, width = x.shape
        parts = self.project(x).view(batch, rows, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        made = scaled_dot_product_attention(parts[0], parts[1], parts[2], seen, is_causal=self.causal)
        result: Tensor = self.out(made.transpose(1, 2).reshape(batch, rows, width))
        return result


class Block(nn.Module):
    """Transformer block: self-attention, then two linear layers with a GELU between them, each part with a residual.

    If `first`, it normalises before each part (GPT-2), otherwise after it (BERT).
    """

    def __init__(self, width: int, heads: int, first: bool, causal: bool, approximate: str) -> None:
        super().__init__()
        self.first = first
        self.attention = Attention(width, heads, causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate), nn.Linear(4 * width, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        """Apply the block to tokens x [batch, rows, width]; `seen` is the mask of `Attention`."""
        one, other = self.norms
        if self.first:
            x = x + self.attention(one(x), seen)
            return x + self.mlp(other(x))
        x = one(x + self.attention(x, seen))
        result: Tensor = other(x + self.mlp(x))
        return result


def bert(layers: int = 12, width: int = 768, heads: int = 12) -> nn.Module:
    """Build the encoder of BERT-base, for embedded tokens [batch, rows, width]."""
    return nn.Sequential(*(Block(width, heads, first=False, causal=False, approximate="none") for _ in range(layers)))


def gpt2(layers: int = 12, width: int = 768, heads: int = 12) -> nn.Module:
    """Build the blocks and the last normalisation of GPT-2 (124 million parameters), for embedded tokens [batch, rows, width]."""
    blocks = (Block(width, heads, first=True, causal=True, approximate="tanh") for _ in range(layers))
    return nn.Sequential(*blocks, nn.LayerNorm(width))


class Heads(nn.Module):
    """Multi-head attention of oneDNN Graph Compiler: softmax(q k^T / sqrt(size) + mask) v, with all heads next to each other."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Apply attention to q, k and v [batch, rows, hidden] with an additive mask [batch, 1, 1, rows]."""
        batch, rows, hidden = q.shape
        q, k, v = (one.view(batch, rows, self.heads, hidden // self.heads).transpose(1, 2) for one in (q, k, v))
        scores = q @ k.transpose(2, 3) / (hidden // self.heads) ** 0.5 + mask
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, rows, hidden)


def mlp(widths: Sequence[int]) -> nn.Module:
    """Build the MLP of oneDNN Graph Compiler: linear layers of these widths, each followed by a ReLU."""
    return nn.Sequential(*(layer for c, k in pairwise(widths) for layer in (nn.Linear(c, k), nn.ReLU())))


# BERT and GPT-2 on token ids: embeddings, the blocks of `attention`, and a pooler or logits with the embedding's weights.

class Bert(nn.Module):
    """BERT (Devlin et al., arXiv 1810.04805): embeddings of words, positions and segments, then encoder and pooler."""

    def __init__(self, layers: int, width: int, heads: int, words: int, positions: int) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        blocks = (Block(width, heads, first=False, causal=False, approximate="none") for _ in range(layers))
        self.blocks = nn.ModuleList(blocks)
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: Tensor, segments: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return (states [batch, rows, width], pooled first state [batch, width]) of tokens; all inputs are [batch, rows].

        `ids` are the tokens, `segments` the sentence that each belongs to, and `mask` is 0 for padding.
        """
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.segments(segments) + self.positions(places))
        seen = mask.to(torch.bool)[:, None, None]
        for block in self.blocks:
            x = block(x, seen)
        return x, torch.tanh(self.pooler(x[:, 0]))


class Gpt2(nn.Module):
    """GPT-2 (Radford et al., 2019): embeddings of words and positions, blocks, normalisation, and logits of the next token."""

    def __init__(self, layers: int, width: int, heads: int, words: int, positions: int) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads, first=True, causal=True, approximate="tanh") for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, words, bias=False)
        self.logits.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits [batch, rows, words] of the next token for token ids [batch, rows]."""
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.logits(self.norm(x))
        return logits


def bert_of_ids(layers: int = 12, width: int = 768, heads: int = 12, words: int = 30522, positions: int = 512) -> nn.Module:
    """Build BERT-base, uncased (110 million parameters), with random weights."""
    return _as_trained(Bert(layers, width, heads, words, positions))


def gpt2_of_ids(layers: int = 12, width: int = 768, heads: int = 12, words: int = 50257, positions: int = 1024) -> nn.Module:
    """Build the smallest GPT-2 (124 million parameters), with random weights."""
    return _as_trained(Gpt2(layers, width, heads, words, positions))


def _as_trained(module: nn.Module) -> nn.Module:
    """Initialise embeddings with standard deviation 0.02, as both networks do; with torch's 1 they would dominate the blocks."""
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)
    return module
