"""Concatenations in networks: Swin's patch merging (Liu et al., arXiv 2103.14030), and channels like in U-Net and DenseNet."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Merging(nn.Module):
    """Concatenate the channels of every 2x2 pixels; if `goes_on`, normalise them and project them to half as many."""

    def __init__(self, channels: int, goes_on: bool) -> None:
        super().__init__()
        kept = nn.Linear(4 * channels, 2 * channels, bias=False)
        self.rest = nn.Sequential(nn.LayerNorm(4 * channels), kept) if goes_on else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Merge the pixels of x [n, h, w, channels]."""
        parts = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        made: Tensor = self.rest(torch.cat(parts, -1))
        return made


class Channels(nn.Module):
    """Concatenation of two images' channels."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Concatenate x [n, c, h, w] and y [n, k, h, w] along the channels."""
        return torch.cat((x, y), 1)
