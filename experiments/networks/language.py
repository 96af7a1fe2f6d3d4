"""BERT and GPT-2 on token ids: embeddings, the blocks of `attention`, and a pooler or logits with the embedding's weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.networks.attention import Block


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
        """(states [batch, rows, width], pooled first state [batch, width]); ids, segments and mask are [batch, rows]."""
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
        """Logits [batch, rows, words] for ids [batch, rows]."""
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.logits(self.norm(x))
        return logits


def bert(layers: int = 12, width: int = 768, heads: int = 12, words: int = 30522, positions: int = 512) -> nn.Module:
    """BERT-base, uncased (110 million parameters), with random weights."""
    return _as_trained(Bert(layers, width, heads, words, positions))


def gpt2(layers: int = 12, width: int = 768, heads: int = 12, words: int = 50257, positions: int = 1024) -> nn.Module:
    """The smallest GPT-2 (124 million parameters), with random weights."""
    return _as_trained(Gpt2(layers, width, heads, words, positions))


def _as_trained(module: nn.Module) -> nn.Module:
    """Initialise embeddings with standard deviation 0.02, as in both networks; torch's default of 1 would dominate the blocks."""
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)
    return module
