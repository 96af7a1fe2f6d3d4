"""Images and signals in other sizes: the nearest pixel, or between two along each axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_gym.frontends.aten.places import take
from gensor_gym.frontends.aten.products import along
from gensor_gym.frontends.builder import Builder
from gensor_gym.frontends.covered import covers as _covers

Sizes = Sequence[int] | None
Scales = Sequence[float] | None


def _steps(b: Builder, x: str, sizes: Sizes, scales: Scales) -> list[tuple[int, int, int, float]]:
    """Of every axis behind the channels (axis, extent, extent wanted, how far neighbours lie apart in x)."""
    found = []
    for place, extent in enumerate(b.shapes[x][2:]):
        to = sizes[place] if sizes is not None else int(extent * scales[place])  # type: ignore[index]
        apart = extent / to if sizes is not None or scales is None else 1.0 / scales[place]
        found.append((place + 2, extent, to, apart))
    return found


@_covers("upsample_nearest1d.vec", "upsample_nearest2d.vec")
def _nearest(b: Builder, x: str, sizes: Sizes, scales: Scales) -> str:
    for axis, extent, to, apart in _steps(b, x, sizes, scales):
        shape = b.shapes[x]
        if to % extent == 0 and apart == extent / to:
            wide = (*shape[: axis + 1], to // extent, *shape[axis + 1 :])
            repeated = b.repeat(b.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :])), wide)
            x = b.reshape(repeated, (*shape[:axis], to, *shape[axis + 1 :]))
        else:
            x = take(b, x, [axis], np.minimum(np.floor(np.arange(to) * np.float32(apart)), extent - 1))
    return x


@_covers("upsample_linear1d.vec", "upsample_bilinear2d.vec")
def _linear(b: Builder, x: str, sizes: Sizes, corners: bool, scales: Scales) -> str:
    for axis, extent, to, apart in _steps(b, x, sizes, scales):
        if corners:
            places = np.arange(to) * ((extent - 1) / (to - 1) if to > 1 else 0.0)
        else:
            places = np.maximum((np.arange(to) + 0.5) * apart - 0.5, 0.0)
        x = along(b, x, axis, _between(places, extent))
    return x


def _between(places: np.ndarray, extent: int) -> np.ndarray:
    """The matrix [extent, places] of shares of the two pixels that a place lies between."""
    low = np.minimum(np.floor(places).astype(int), extent - 1)
    share, made = places - low, np.zeros((extent, len(places)))
    np.add.at(made, (low, np.arange(len(places))), 1.0 - share)
    np.add.at(made, (np.minimum(low + 1, extent - 1), np.arange(len(places))), share)
    return made
