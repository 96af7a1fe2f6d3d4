"""Values that are joined: Swin's patch merging (Liu et al., arXiv 2103.14030) and channels, as U-Net and DenseNet join them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Merging(nn.Module):
    """Four neighbouring pixels become one, with their channels one behind the other; then, if asked, half of these are kept."""

    def __init__(self, channels: int, goes_on: bool) -> None:
        super().__init__()
        kept = nn.Linear(4 * channels, 2 * channels, bias=False)
        self.rest = nn.Sequential(nn.LayerNorm(4 * channels), kept) if goes_on else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Input is [n, h, w, channels]."""
        parts = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        made: Tensor = self.rest(torch.cat(parts, -1))
        return made


class Channels(nn.Module):
    """Channels of two images one behind the other."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Join [n, c, h, w] and [n, k, h, w]."""
        return torch.cat((x, y), 1)
