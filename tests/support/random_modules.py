"""Torch modules that nobody wrote: layers that fit one another, drawn with a seed, with branches that are added or joined."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Layers = list[nn.Module]


class Of(nn.Module):
    """A function of what some bodies make of x."""

    def __init__(self, function: Callable[..., Tensor], *bodies: nn.Module) -> None:
        super().__init__()
        self.function, self.bodies = function, nn.ModuleList(bodies)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *(body(x) for body in self.bodies))


def added(body: nn.Module) -> nn.Module:
    """x + body(x)."""
    return Of(lambda x, y: x + y, body)


def joined(one: nn.Module, other: nn.Module) -> nn.Module:
    """Both bodies of x, one after the other along axis 1."""
    return Of(lambda x, y, z: torch.cat([y, z], 1), one, other)


def squeezed(c: int, few: int) -> nn.Module:
    """Squeeze and excitation: channels times a number that the means of all give."""
    layers = nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, few, 1), nn.SiLU(), nn.Conv2d(few, c, 1), nn.Hardsigmoid()
    return Of(lambda x, y: x * y, nn.Sequential(*layers))


class Attends(nn.Module):
    """Attention over rows, of a mask where it has one."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.project = nn.Linear(width, 3 * width, bias=causal)

    def forward(self, x: Tensor) -> Tensor:
        batch, rows, width = x.shape
        q, k, v = (one.view(batch, rows, self.heads, -1).transpose(1, 2) for one in self.project(x).chunk(3, -1))
        made = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return made.transpose(1, 2).reshape(batch, rows, width)


class Seen(nn.Module):
    """Ids and which of them count, as rows for a body: embedded, with positions, the others left out of the mean."""

    def __init__(self, words: int, width: int, body: nn.Module) -> None:
        super().__init__()
        self.words, self.positions, self.body = nn.Embedding(words, width), nn.Embedding(16, width), body

    def forward(self, ids: Tensor, counts: Tensor) -> Tensor:
        y = self.body(self.words(ids) + self.positions(torch.arange(ids.shape[1])))
        y = y.masked_fill(~counts[..., None], 0.0)
        return y.sum(1) / counts.sum(1, keepdim=True).clamp(min=1)


class Draw:
    """One random module: `module` of images, of rows or of ids, and its `inputs`."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        kinds = self._rows, self._images, self._ids, self._images
        self.module, self.inputs = kinds[seed % len(kinds)]()
        for part in self.module.modules():
            if isinstance(part, nn.BatchNorm2d):
                nn.init.normal_(part.running_mean)  # type: ignore[arg-type]
                nn.init.uniform_(part.running_var, 0.5, 2.0)  # type: ignore[arg-type]
        self.module.eval()

    def _one_of(self, *choices: int) -> int:
        return choices[int(torch.randint(len(choices), (), generator=self.generator))]

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator)

    def _activation(self) -> nn.Module:
        known = nn.ReLU(), nn.ReLU6(), nn.GELU(), nn.SiLU(), nn.Hardswish(), nn.Tanh(), nn.ELU(), nn.LeakyReLU(), nn.GELU("tanh")
        return known[self._one_of(*range(len(known)))]

    def _convolution(self, c: int, k: int) -> nn.Module:
        groups = self._one_of(1, 1, 2) if c % 2 == 0 and k % 2 == 0 else 1
        size, bias = self._one_of(1, 3), bool(self._one_of(0, 1))
        dilation = self._one_of(1, 1, 2)
        return nn.Conv2d(c, k, size, padding=size // 2 * dilation, dilation=dilation, groups=groups, bias=bias)

    def _norm(self, c: int) -> nn.Module:
        known = nn.BatchNorm2d(c), nn.BatchNorm2d(c), nn.GroupNorm(1, c), nn.InstanceNorm2d(c, affine=True)
        return known[self._one_of(0, 1, 2, 3)]

    def _block(self, c: int) -> tuple[Layers, int]:
        """Layers of images of c channels, and how many they leave."""
        k = self._one_of(4, 5, 8)
        match self._one_of(*range(8)):
            case 0:
                return [added(nn.Sequential(self._convolution(c, c), self._norm(c), self._activation()))], c
            case 1:
                return [joined(self._convolution(c, c), nn.Conv2d(c, c, 3, padding=1, groups=c))], 2 * c
            case 2:
                return [self._convolution(c, k), self._norm(k), self._activation()], k
            case 3:
                return [nn.MaxPool2d(3, 2, 1, ceil_mode=bool(self._one_of(0, 1))), nn.BatchNorm2d(c)], c
            case 4:
                return [squeezed(c, 2)], c
            case 5:
                size = self._one_of(2, 3)
                return [nn.ConvTranspose2d(c, k, size, 2, size // 2 - (size == 2)), self._activation()], k
            case 6:
                return [nn.AvgPool2d(3, 2, 1, count_include_pad=bool(self._one_of(0, 1))), nn.Upsample(scale_factor=2)], c
            case _:
                return [Of(lambda x: functional.pad(x, (1, 0, 0, 1))[:, :, ::2] + 1), self._convolution(c, k)], k

    def _images(self) -> tuple[nn.Module, tuple[Tensor, ...]]:
        c, height, width = self._one_of(2, 3, 4), self._one_of(6, 7, 9), self._one_of(6, 8)
        x, layers = self._normal(self._one_of(1, 2), c, height, width), Layers()
        for _ in range(self._one_of(2, 3)):
            block, c = self._block(c)
            layers += block
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, self._one_of(3, 10)), nn.Softmax(-1)]
        return nn.Sequential(*layers), (x,)

    def _of_rows(self, width: int) -> nn.Module:
        """Layers of rows of one width, which they leave."""
        layers = Layers()
        for _ in range(self._one_of(2, 3)):
            match self._one_of(*range(5)):
                case 0:
                    layers.append(added(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), self._activation())))
                case 1:
                    wide = self._one_of(7, 16)
                    layers += [nn.Linear(width, wide), self._activation(), nn.Linear(wide, width, bias=False)]
                case 2:
                    layers += [nn.Linear(width, width), nn.Softmax(-1), nn.LayerNorm(width, elementwise_affine=False)]
                case 3:
                    layers.append(added(nn.Sequential(nn.RMSNorm(width, 1e-6), Attends(width, 2, bool(self._one_of(0, 1))))))
                case _:
                    layers.append(nn.Sequential(nn.Linear(width, 2 * width), nn.GLU(-1)))
        return nn.Sequential(*layers)

    def _rows(self) -> tuple[nn.Module, tuple[Tensor, ...]]:
        width = self._one_of(6, 8, 12)
        return self._of_rows(width), (self._normal(self._one_of(1, 2), self._one_of(1, 5), width),)

    def _ids(self) -> tuple[nn.Module, tuple[Tensor, ...]]:
        width, words, shape = self._one_of(6, 8, 12), self._one_of(5, 11), (self._one_of(1, 2), self._one_of(3, 7))
        ids = torch.randint(words, shape, generator=self.generator)
        counts = torch.rand(shape, generator=self.generator) < 0.7
        return Seen(words, width, self._of_rows(width)), (ids, counts)
