"""Torch modules with changing sizes that nobody wrote, drawn with a seed, and modules for what they have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from tests.support.random_modules import Draw, Of

Ranges = dict[str, tuple[int, int]]


class Cached(nn.Module):
    """One step of a decoder's attention: new rows are joined to those of the caches, which it returns."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, rows, width = x.shape
        q, k, v = (one.view(batch, rows, self.heads, -1).transpose(1, 2) for one in self.project(x).chunk(3, -1))
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        made = (q @ keys.transpose(2, 3) / 2).softmax(-1) @ values
        return self.out(made.transpose(1, 2).reshape(batch, rows, width)), keys, values


class Sized(Draw):
    """One random module of rows [batch, rows, width], with the changing sizes of `ranges`, and inputs for any of them."""

    def __init__(self, seed: int) -> None:
        self.width = 8
        self.ranges: Ranges = {}
        super().__init__(seed)
        torch.manual_seed(seed)
        self.ends = self._one_of(*range(10))
        changing = self._one_of(0, 1, 2)
        ranges = {"batch": (1, 6)}, {"rows": (2, 12)}, {"batch": (1, 4), "rows": (1, 9)}
        self.ranges = ranges[changing]
        self.fixed = {"batch": self._one_of(1, 2), "rows": self._one_of(3, 5)}
        self.module = nn.Sequential(self._of_rows(self.width), self._end()).eval()

    def _end(self) -> nn.Module:
        def gated(x: Tensor) -> Tensor:
            return x * x.mean(1, keepdim=True) + torch.arange(x.shape[1])[:, None] / x.shape[1]

        known: Sequence[Any] = (
            lambda x: x.mean(1), lambda x: x.amax(1) + x.sum(1), lambda x: x[:, -1], lambda x: x.softmax(1),
            lambda x: torch.cat([x, x[:, :1] * 2], 1), lambda x: x.flip(1) + 1, gated, lambda x: x.var(1, correction=0),
            lambda x: x.transpose(1, 2) @ x, lambda x: (x - x.logsumexp(1, keepdim=True)).reshape(-1, x.shape[-1]),
        )  # fmt: skip
        return Of(known[self.ends])

    def _of_rows(self, width: int) -> nn.Module:
        whole = super()._of_rows(width)
        assert isinstance(whole, nn.Sequential)
        return whole[:1]

    @property
    def example(self) -> dict[str, int]:
        """Sizes for torch.export: neither 0 nor 1."""
        return {name: max(least, 3) for name, (least, _) in self.ranges.items()}

    def given(self, sizes: Mapping[str, int]) -> tuple[Tensor, ...]:
        """Draw inputs for one value of each changing size by name."""
        known = {**self.fixed, **sizes}
        return (self._normal(known["batch"], known["rows"], self.width),)

    def names(self, symbols: Sequence[Any]) -> list[str]:
        """Names of the sizes in the order of a program's symbols."""
        return [("batch", "rows")[one.axis] for one in symbols]

    @property
    def shapes(self) -> tuple[dict[int, Any], ...]:
        """The sizes as torch.export takes them."""
        places = {"batch": 0, "rows": 1}
        return ({places[name]: Dim(name, min=least, max=most) for name, (least, most) in self.ranges.items()},)
