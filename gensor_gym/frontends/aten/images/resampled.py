"""Rules for resizing signals, images and volumes by nearest or linear interpolation.

Positions are computed in float32, as in torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_gym.frontends.aten.places import along, take
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import covers as _covers

Sizes = Sequence[int] | None
Scales = Sequence[float] | None
_Number = np.float32
"""NumPy type in which torch computes pixel positions. At some scales another type would select other pixels."""


def _steps(b: Builder, x: str, sizes: Sizes, scales: Scales) -> list[tuple[int, int, int, np.float32]]:
    """Return (axis, extent, new extent, distance in x between neighbouring results) for every axis of x that is resized."""
    found = []
    for place, extent in enumerate(b.shapes[x][2:]):
        to = sizes[place] if sizes is not None else int(extent * scales[place])  # type: ignore[index]
        apart = _Number(extent) / _Number(to) if scales is None else _Number(1.0 / scales[place])
        if to != extent:
            found.append((place + 2, extent, to, apart))
    return found


@_covers("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def _nearest(b: Builder, x: str, sizes: Sizes, scales: Scales) -> str:
    for axis, extent, to, apart in _steps(b, x, sizes, scales):
        shape, numbers = b.shapes[x], np.arange(to)
        places = np.minimum(np.floor(numbers.astype(_Number) * apart).astype(int), extent - 1)
        if to == 2 * extent:  # for any scale
            places = numbers // 2
        if to % extent == 0 and np.array_equal(places, numbers // (to // extent)):
            wide = (*shape[: axis + 1], to // extent, *shape[axis + 1 :])
            repeated = b.repeat(b.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :])), wide)
            x = b.reshape(repeated, (*shape[:axis], to, *shape[axis + 1 :]))
        else:
            x = take(b, x, [axis], places)
    return x


@_covers("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec")
def _linear(b: Builder, x: str, sizes: Sizes, corners: bool, scales: Scales) -> str:
    for axis, extent, to, apart in reversed(_steps(b, x, sizes, scales)):  # columns first, because `along` transposes
        numbers = np.arange(to).astype(_Number)
        if corners:
            places = numbers * (_Number(extent - 1) / _Number(to - 1) if to > 1 else _Number(0.0))
        else:
            places = np.maximum((numbers + _Number(0.5)) * apart - _Number(0.5), _Number(0.0))
        low = np.minimum(np.floor(places).astype(int), extent - 1)
        (rows, back), share = along(b, x, axis), np.clip(places - low, 0.0, 1.0).reshape(-1, 1)
        one, other = (take(b, rows, [0], pixels) for pixels in (low, np.minimum(low + 1, extent - 1)))
        near, far = b.constant("near", _Number(1.0) - share), b.constant("far", share)
        x = back(b.map(of("add", of("multiply", near, one), of("multiply", far, other)), "between"))
    return x
