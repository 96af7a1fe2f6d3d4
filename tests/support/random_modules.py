"""Torch modules that nobody wrote: layers that fit one another, drawn with a seed, with branches that are added or joined."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Sum(nn.Module):
    """x + body(x)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.body(x)
        return result


class Joined(nn.Module):
    """Both bodies of x, one after the other along axis 1."""

    def __init__(self, one: nn.Module, other: nn.Module) -> None:
        super().__init__()
        self.one, self.other = one, other

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.other(x)], 1)


class Draw:
    """One random module: `module` of images or of rows, and the shape of its input."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        self.module, self.shape = (self._images if seed % 2 else self._rows)()
        for part in self.module.modules():
            if isinstance(part, nn.BatchNorm2d):
                nn.init.normal_(part.running_mean)  # type: ignore[arg-type]
                nn.init.uniform_(part.running_var, 0.5, 2.0)  # type: ignore[arg-type]
        self.module.eval()

    def _one_of(self, *choices: int) -> int:
        return choices[int(torch.randint(len(choices), (), generator=self.generator))]

    def _activation(self) -> nn.Module:
        return (nn.ReLU(), nn.ReLU6(), nn.GELU(), nn.SiLU(), nn.Hardswish(), nn.Tanh())[self._one_of(0, 1, 2, 3, 4, 5)]

    def _convolution(self, c: int, k: int) -> nn.Module:
        groups = self._one_of(1, 1, 2) if c % 2 == 0 and k % 2 == 0 else 1
        size = self._one_of(1, 3)
        return nn.Conv2d(c, k, size, padding=size // 2, groups=groups, bias=bool(self._one_of(0, 1)))

    def _images(self) -> tuple[nn.Module, tuple[int, ...]]:
        c, height, width = self._one_of(2, 3, 4), self._one_of(6, 7, 9), self._one_of(6, 8)
        shape, layers = (self._one_of(1, 2), c, height, width), list[nn.Module]()
        for _ in range(self._one_of(2, 3)):
            match self._one_of(0, 1, 2, 3):
                case 0:
                    layers.append(Sum(nn.Sequential(self._convolution(c, c), nn.BatchNorm2d(c), self._activation())))
                case 1:
                    layers.append(Joined(self._convolution(c, c), nn.Conv2d(c, c, 3, padding=1, groups=c)))
                    c *= 2
                case 2:
                    k = self._one_of(4, 5, 8)
                    layers += [self._convolution(c, k), nn.BatchNorm2d(k), self._activation()]
                    c = k
                case 3:
                    layers += [nn.MaxPool2d(3, 2, 1), nn.BatchNorm2d(c)]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, self._one_of(3, 10)), nn.Softmax(-1)]
        return nn.Sequential(*layers), shape

    def _rows(self) -> tuple[nn.Module, tuple[int, ...]]:
        width = self._one_of(6, 8, 12)
        shape, layers = (self._one_of(1, 2), self._one_of(1, 5), width), list[nn.Module]()
        for _ in range(self._one_of(2, 3)):
            match self._one_of(0, 1, 2):
                case 0:
                    layers.append(Sum(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), self._activation())))
                case 1:
                    wide = self._one_of(7, 16)
                    layers += [nn.Linear(width, wide), self._activation(), nn.Linear(wide, width, bias=False)]
                case 2:
                    layers += [nn.Linear(width, width), nn.Softmax(-1), nn.LayerNorm(width, elementwise_affine=False)]
        return nn.Sequential(*layers), shape
