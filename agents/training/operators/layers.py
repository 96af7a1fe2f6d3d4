"""Layers of named networks, as operators at many image sizes, numbers of tokens and batch sizes.

`experiments/data/network_layers.csv` has each layer for one image of 224 x 224 or for 128 tokens (written by `extract`).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from agents.runs.settings import ROOT
from gensor_gym import operators
from gensor_gym.operators.types import Operator

FILE = ROOT / "experiments" / "data" / "network_layers.csv"
SIZE, TOKENS = 224, 128
"""Side of the image and number of tokens for which the file of layers has the extents."""
SIDES = (64, 96, 128, 160, 192, 224, 256, 320, 384)
"""Sides of the images among which a layer's size is drawn."""
MOST_BATCH = 8
_DEFAULT = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}


@dataclass(frozen=True)
class Layer:
    """A layer of a named network as an operator with variable size.

    `extent` is the side of the layer's image, or its number of rows (tokens or pixels).
    """

    network: str
    kind: str
    sizes: Mapping[str, int]
    """Constant arguments of the operator; 0 stands for the number of tokens."""
    scales: str
    """Whether the extent grows with the size of the `image` or with the number of `tokens`."""
    extent: int

    def __hash__(self) -> int:
        return hash(self.row())

    def row(self) -> tuple[str, ...]:
        """Return the layer's row in the file of layers."""
        sizes = " ".join(f"{key}={value}" for key, value in self.sizes.items() if _DEFAULT.get(key) != value)
        return self.network, self.kind, sizes, self.scales, str(self.extent)

    def at(self, size: int, batch: int) -> Operator:
        """Return the layer's operator for images of `size` x `size`, or for `size` tokens.

        ValueError if an image is too small for the layer.
        """
        rows = max(1, round(self.extent * size / (SIZE if self.scales == "image" else TOKENS)))
        sizes = {key: value or rows for key, value in self.sizes.items()}
        if self.kind in ("gemm", "reduce_sum"):
            if self.scales == "image":
                rows = max(1, round(self.extent * (size / SIZE) ** 2))
            return operators.FACTORIES[self.kind](m=rows * batch, **sizes)
        if self.kind == "batched_gemm":
            return operators.batched_gemm(b=sizes["b"] * batch, m=rows, n=sizes["n"], k=sizes["k"])
        return operators.FACTORIES[self.kind](n=batch, h=rows, w=rows, **sizes)


@cache
def layers() -> tuple[Layer, ...]:
    """Read all layers of networks that the file `FILE` lists."""
    with FILE.open(encoding="utf-8", newline="") as file:
        _, *lines = csv.reader(file)
    return tuple(Layer(network, kind, _sizes(sizes), scales, int(extent)) for network, kind, sizes, scales, extent in lines)


def _sizes(text: str) -> dict[str, int]:
    return {key: int(value) for key, _, value in (word.partition("=") for word in text.split())}


def drawn_layer(rng: np.random.Generator, kind: str) -> Operator:
    """Draw a layer of the operator class `kind` at random sizes. `gemv` is a matrix product with one row.

    ValueError for impossible sizes.
    """
    known = _of("gemm" if kind == "gemv" else kind)
    layer = known[rng.integers(len(known))]
    if layer.scales == "image":
        size = int(rng.choice(SIDES))
        batch = int(2 ** rng.integers(MOST_BATCH.bit_length())) if rng.random() < 0.3 else 1
    else:
        size = round(2 ** rng.uniform(0, 10)) if rng.random() < 0.5 else int(2 ** rng.integers(0, 11))
        batch = int(rng.choice((1, 1, 1, 2, 4)))
    return operators.gemv(m=layer.sizes["n"], k=layer.sizes["k"]) if kind == "gemv" else layer.at(size, batch)


@cache
def _of(kind: str) -> tuple[Layer, ...]:
    return tuple(layer for layer in layers() if layer.kind == kind)
