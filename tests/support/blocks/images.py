"""Blocks of networks of images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from tests.support.blocks.parts import Of, conv_norm


def squeeze_excite(c: int = 16) -> nn.Module:
    """Hu et al., arXiv 1709.01507."""
    gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, c // 4, 1), nn.ReLU(), nn.Conv2d(c // 4, c, 1), nn.Sigmoid())
    return Of(lambda p, x: x * p.gate(x), gate=gate)


def shuffle_unit(c: int = 16) -> nn.Module:
    """ShuffleNet V2 (arXiv 1807.11164): half the channels go through, then channels are shuffled."""
    h = c // 2
    branch = nn.Sequential(conv_norm(h, h), conv_norm(h, h, 3, groups=h, act=None), conv_norm(h, h))

    def forward(p: nn.ModuleDict, x: Tensor) -> Tensor:
        one, other = x.chunk(2, 1)
        made = torch.cat((one, p.branch(other)), 1)
        n, c, height, width = made.shape
        return made.view(n, 2, c // 2, height, width).transpose(1, 2).reshape(n, c, height, width)

    return Of(forward, branch=branch)


def shuffle_down(c: int = 8) -> nn.Module:
    """The same with stride 2: two branches side by side."""
    one = nn.Sequential(conv_norm(c, c, 3, 2, c, None), conv_norm(c, c))
    other = nn.Sequential(conv_norm(c, c), conv_norm(c, c, 3, 2, c, None), conv_norm(c, c))
    return Of(lambda p, x: f.channel_shuffle(torch.cat((p.one(x), p.other(x)), 1), 2), one=one, other=other)


class Dense(nn.Module):
    """DenseNet (arXiv 1608.06993): every layer reads the features of all before it."""

    def __init__(self, c: int = 8, growth: int = 4, layers: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(c + growth * i), nn.ReLU(), nn.Conv2d(c + growth * i, growth, 3, padding=1, bias=False))
            for i in range(layers)
        )
        self.last = nn.Conv2d(c + growth * layers, c, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Of images."""
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return self.last(torch.cat(features, 1))


class Unet(nn.Module):
    """U-Net (arXiv 1505.04597): down, up, and what was on the way down beside what comes up."""

    def __init__(self, c: int = 4) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = conv_norm(c, 8, 3), conv_norm(8, 16, 3), conv_norm(16, 32, 3)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.in2, self.in1, self.out = conv_norm(32, 16, 3), conv_norm(16, 8, 3), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of every pixel."""
        one = self.down1(x)
        two = self.down2(f.max_pool2d(one, 2))
        x = self.middle(f.max_pool2d(two, 2))
        x = self.in2(torch.cat((self.up2(x), two), 1))
        x = self.in1(torch.cat((one, self.up1(x)), 1))
        return self.out(x)


def inception(c: int = 12) -> nn.Module:
    """GoogLeNet (arXiv 1409.4842): four branches side by side."""
    parts = {
        "a": conv_norm(c, 8), "b": nn.Sequential(conv_norm(c, 4), conv_norm(4, 8, 3)),
        "c": nn.Sequential(conv_norm(c, 4), conv_norm(4, 4, 5)), "d": nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_norm(c, 4)),
    }  # fmt: skip
    return Of(lambda p, x: torch.cat([p[name](x) for name in "abcd"], 1), **parts)


def spatial_pyramid(c: int = 8) -> nn.Module:
    """YOLO's SPPF: poolings of poolings side by side."""

    def forward(p: nn.ModuleDict, x: Tensor) -> Tensor:
        x = p.first(x)
        one = f.max_pool2d(x, 5, 1, 2)
        two = f.max_pool2d(one, 5, 1, 2)
        return p.last(torch.cat((x, one, two, f.max_pool2d(two, 5, 1, 2)), 1))

    return Of(forward, first=conv_norm(c, 4, act=nn.SiLU), last=conv_norm(16, c, act=nn.SiLU))


def pyramid_pooling(c: int = 8) -> nn.Module:
    """PSPNet (arXiv 1612.01105): poolings of several sizes, back to the image's, side by side."""

    def forward(p: nn.ModuleDict, x: Tensor) -> Tensor:
        sizes = [f.interpolate(p[f"s{s}"](f.adaptive_avg_pool2d(x, s)), x.shape[2:], mode="bilinear") for s in (1, 2, 3)]
        return p.last(torch.cat([x, *sizes], 1))

    return Of(forward, last=conv_norm(c + 6, c, 3), **{f"s{s}": nn.Conv2d(c, 2, 1) for s in (1, 2, 3)})


def mb_conv(c: int = 8, expand: int = 4) -> nn.Module:
    """EfficientNet (arXiv 1905.11946): an inverted residual with SiLU and squeeze-excite."""
    wide = c * expand
    gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 2, 1), nn.SiLU(), nn.Conv2d(2, wide, 1), nn.Sigmoid())

    def forward(p: nn.ModuleDict, x: Tensor) -> Tensor:
        y = p.depthwise(p.wide(x))
        return x + p.narrow(y * p.gate(y))

    parts = {"wide": conv_norm(c, wide, act=nn.SiLU), "depthwise": conv_norm(wide, wide, 5, groups=wide, act=nn.SiLU)}
    return Of(forward, gate=gate, narrow=conv_norm(wide, c, act=None), **parts)


def mobilenet_v3(c: int = 8) -> nn.Module:
    """Hard swish and hard sigmoid (arXiv 1905.02244)."""
    gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, 4, 1), nn.ReLU(), nn.Conv2d(4, c, 1), nn.Hardsigmoid())
    body = conv_norm(c, c, 3, groups=c, act=nn.Hardswish)
    return Of(lambda p, x: x + (y := p.body(x)) * p.gate(y), body=body, gate=gate)


class LayerNorm2d(nn.LayerNorm):
    """Of the channels of images."""

    def forward(self, x: Tensor) -> Tensor:
        """Of [n, c, h, w]."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Scale(nn.Module):
    """LayerScale: a factor of each of the last axis."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.randn(c))

    def forward(self, x: Tensor) -> Tensor:
        """Of [.., c]."""
        return x * self.gamma


def convnext(c: int = 8) -> nn.Module:
    """ConvNeXt (arXiv 2201.03545)."""
    body = nn.Sequential(nn.LayerNorm(c), nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c), Scale(c))
    depthwise = nn.Conv2d(c, c, 7, padding=3, groups=c)
    return Of(lambda p, x: x + p.body(p.depthwise(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2), body=body, depthwise=depthwise)


def convnext_v2(c: int = 8) -> nn.Module:
    """Its global response normalisation (arXiv 2301.00808), and a LayerNorm of channels on the way down."""

    def forward(p: nn.ModuleDict, x: Tensor) -> Tensor:
        x = p.down(p.norm(x)).permute(0, 2, 3, 1)
        g = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        return x * (g / (g.mean(-1, keepdim=True) + 1e-6)) + x

    return Of(forward, norm=LayerNorm2d(c), down=nn.Conv2d(c, 2 * c, 2, 2))


def attention_gate(c: int = 8) -> nn.Module:
    """CBAM (arXiv 1807.06521): of channels by mean and largest, then of places."""

    def forward(p: nn.ModuleDict, x: Tensor) -> Tensor:
        x = x * torch.sigmoid(p.mlp(x.mean((2, 3))) + p.mlp(x.amax((2, 3))))[:, :, None, None]
        two = torch.cat((x.mean(1, keepdim=True), x.amax(1, keepdim=True)), 1)
        return x * torch.sigmoid(p.place(two))

    mlp = nn.Sequential(nn.Linear(c, 4), nn.ReLU(), nn.Linear(4, c))
    return Of(forward, mlp=mlp, place=nn.Conv2d(2, 1, 7, padding=3))


def detection_head(c: int = 8) -> nn.Module:
    """Two sizes of an image, their logits of all places one after another: the output is a join."""

    def forward(p: nn.ModuleDict, x: Tensor) -> Tensor:
        small = p.down(x)
        return torch.cat([p.head(x).flatten(2), p.head(small).flatten(2), p.other(small).flatten(2)], 2).transpose(1, 2)

    return Of(forward, down=conv_norm(c, c, 3, 2), head=nn.Conv2d(c, 6, 3, padding=1), other=nn.Conv2d(c, 6, 1))


def upsampler(c: int = 8) -> nn.Module:
    """ESPCN and a skip: sub-pixels, bilinear beside."""
    return Of(
        lambda p, x: f.pixel_shuffle(p.wide(x), 2) + f.interpolate(p.narrow(x), scale_factor=2, mode="bilinear"),
        wide=nn.Conv2d(c, 12, 3, padding=1), narrow=nn.Conv2d(c, 3, 1),
    )  # fmt: skip


def ghost(c: int = 8) -> nn.Module:
    """GhostNet (arXiv 1911.11907): half of the features by cheap operations of the others."""
    return Of(lambda p, x: torch.cat([y := p.first(x), p.cheap(y)], 1), first=conv_norm(c, 8), cheap=conv_norm(8, 8, 3, groups=8))


def fire(c: int = 8) -> nn.Module:
    """SqueezeNet (arXiv 1602.07360)."""
    return Of(
        lambda p, x: torch.cat([torch.relu(p.one(y := torch.relu(p.squeeze(x)))), torch.relu(p.three(y))], 1),
        squeeze=nn.Conv2d(c, 4, 1), one=nn.Conv2d(4, 8, 1), three=nn.Conv2d(4, 8, 3, padding=1),
    )  # fmt: skip


def repeated_join(c: int = 4) -> nn.Module:
    """One value twice, an input, and a constant in one join, read again in another."""

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.row, self.last = nn.Parameter(torch.randn(1, 2, 6, 6)), nn.Conv2d(3 * c + 2, c, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            row = self.row.expand(x.shape[0], -1, -1, -1)
            return self.last(torch.cat((y, y, x, row), 1)) + torch.cat((y[:, :1], y[:, 1:]), 1)

    return Joined()
