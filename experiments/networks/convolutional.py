"""Networks for images: ResNet (He et al., arXiv 1512.03385), MobileNetV2 (Sandler et al., arXiv 1801.04381), concatenations.

The concatenations are Swin's patch merging (Liu et al., arXiv 2103.14030), and concatenated channels as in U-Net and DenseNet.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def _convolution(c: int, k: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Return a convolution that changes the image size only by its stride, and a batch normalisation."""
    return [nn.Conv2d(c, k, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(k)]


class Residual(nn.Module):
    """Residual block relu(body(x) + x); if the shape changes, a 1x1 convolution is applied to x."""

    def __init__(self, c: int, k: int, stride: int, body: Sequence[nn.Module]) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)
        self.shortcut = nn.Sequential(*(_convolution(c, k, 1, stride) if stride != 1 or c != k else []))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Apply the residual block to images [n, c, h, w]."""
        result: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return result


def _basic(c: int, width: int, stride: int) -> Residual:
    body = [*_convolution(c, width, 3, stride), nn.ReLU(), *_convolution(width, width, 3)]
    return Residual(c, width, stride, body)


def _bottleneck(c: int, width: int, stride: int) -> Residual:
    """Build a bottleneck block: convolutions 1x1, 3x3, 1x1 with the stride in the 3x3, as in torchvision (ResNet version 1.5)."""
    first, middle = _convolution(c, width, 1), _convolution(width, width, 3, stride)
    body = [*first, nn.ReLU(), *middle, nn.ReLU(), *_convolution(width, 4 * width, 1)]
    return Residual(c, 4 * width, stride, body)


def resnet(blocks: Sequence[int], deep: bool, first: int = 64) -> nn.Module:
    """Build a ResNet for images [n, 3, 224, 224]; `blocks` has the number of blocks in each stage.

    `deep` selects bottleneck blocks. The first convolution has `first` channels, and every stage twice as many as the one before.
    """
    layers: list[nn.Module] = [*_convolution(3, first, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    c = first
    for stage, count in enumerate(blocks):
        width = first << stage
        for number in range(count):
            stride = 2 if stage and number == 0 else 1
            layers.append(_bottleneck(c, width, stride) if deep else _basic(c, width, stride))
            c = 4 * width if deep else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 1000))


class Inverted(nn.Module):
    """Inverted residual block: 1x1 to `expand` times the channels, depthwise 3x3, 1x1 without an activation."""

    def __init__(self, c: int, k: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = c * expand
        first = [*_convolution(c, wide, 1), nn.ReLU6()] if expand > 1 else []
        middle = [*_convolution(wide, wide, 3, stride, groups=wide), nn.ReLU6()]
        self.body = nn.Sequential(*first, *middle, *_convolution(wide, k, 1))
        self.adds = stride == 1 and c == k

    def forward(self, x: Tensor) -> Tensor:
        """Apply the inverted residual to images [n, c, h, w]."""
        result: Tensor = self.body(x)
        return x + result if self.adds else result


_MOBILENET_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""(expansion factor, channels, number of blocks, stride of the first block) of each stage."""


def mobilenet_v2(narrower: int = 1) -> nn.Module:
    """Build MobileNetV2 of width 1 / `narrower`, for images [n, 3, 224, 224]."""
    c, last = 32 // narrower, 1280 // narrower
    layers: list[nn.Module] = [*_convolution(3, c, 3, 2), nn.ReLU6()]
    for expand, k, count, stride in _MOBILENET_V2:
        for number in range(count):
            layers.append(Inverted(c, k // narrower, stride if number == 0 else 1, expand))
            c = k // narrower
    layers += [*_convolution(c, last, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 1000)]
    return nn.Sequential(*layers)


class Merging(nn.Module):
    """Module that concatenates the channels of every 2x2 pixels of an image.

    If `goes_on`, it then normalises them and projects them to half as many channels.
    """

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
    """Module that concatenates the channels of two images."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Concatenate x [n, c, h, w] and y [n, k, h, w] along the channels."""
        return torch.cat((x, y), 1)


class UNet(nn.Module):
    """U-Net of Ronneberger et al. (arXiv 1505.04597), with padded and normalised convolutions, from 3 channels to 2 classes."""

    def __init__(self, widths: Sequence[int] = (64, 128, 256, 512, 1024)) -> None:
        super().__init__()
        pairs = list(zip(widths, widths[1:], strict=False))
        self.first = _twice(3, widths[0])
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), *_twice(c, k)) for c, k in pairs)
        self.turned = nn.ModuleList(nn.ConvTranspose2d(k, c, 2, stride=2) for c, k in reversed(pairs))
        self.up = nn.ModuleList(_twice(2 * c, c) for c, _ in reversed(pairs))
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the classes' scores [n, 2, h, w] of images x [n, 3, h, w]; h and w are multiples of 2 ** (stages - 1)."""
        kept = [self.first(x)]
        for stage in self.down:
            kept.append(stage(kept[-1]))
        made = kept.pop()
        for turned, stage in zip(self.turned, self.up, strict=True):
            made = stage(torch.cat((kept.pop(), turned(made)), 1))
        scores: Tensor = self.last(made)
        return scores


def _twice(c: int, k: int) -> nn.Sequential:
    return nn.Sequential(*_convolution(c, k, 3), nn.ReLU(), *_convolution(k, k, 3), nn.ReLU())
