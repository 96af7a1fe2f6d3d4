"""Windows that slide over images, for the reference definitions of convolutions and pools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gensor_gym.operators.loops import Loops


def options(op: Loops, **defaults: int) -> dict[str, Any]:
    """Values of the named arguments of an operator, with these defaults for arguments that its text leaves out."""
    given = dict(op.arguments)
    return {name: given.get(name, default) for name, default in defaults.items()}


def outputs(op: Loops) -> tuple[int, int]:
    """(rows, columns) of the output, which are the extents of axes p and q."""
    extents = {axis.name: axis.extent for axis in op.axes}
    return extents["p"], extents["q"]


def places(op: Loops, x: np.ndarray, pad_value: float) -> Iterator[tuple[int, int, np.ndarray]]:
    """For every position of the window: (r, s, elements [n, c, p, q] of x [n, c, h, w] at this position of all windows)."""
    found = options(op, padding=0, stride=1, dilation=1)
    (top, left), (down, right), (tall, wide) = (v if isinstance(v, tuple) else (v, v) for v in found.values())
    if top or left:
        x = np.pad(x, ((0, 0), (0, 0), (top, top), (left, left)), constant_values=pad_value)
    p, q = outputs(op)
    height, width = (op.extents[a] for a in op.reduce[-2:])
    for r in range(height):
        rows = slice(r * tall, r * tall + (p - 1) * down + 1, down)
        for s in range(width):
            yield r, s, x[:, :, rows, s * wide : s * wide + (q - 1) * right + 1 : right]
