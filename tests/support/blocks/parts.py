"""What blocks are made of."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class Of(nn.Module):
    """Named parts, and a function of them and the inputs."""

    def __init__(self, forward: Callable[..., Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.parts, self.body = nn.ModuleDict(parts), forward

    def forward(self, *inputs: Tensor) -> Tensor:
        """Of whatever the function takes."""
        return self.body(self.parts, *inputs)


def conv_norm(
    c: int, k: int, size: int = 1, stride: int = 1, groups: int = 1, act: type[nn.Module] | None = nn.ReLU
) -> nn.Sequential:
    """A convolution that keeps the image but for its stride, a normalisation, an activation."""
    layers: list[nn.Module] = [nn.Conv2d(c, k, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(k)]
    return nn.Sequential(*layers, *([act()] if act else []))
