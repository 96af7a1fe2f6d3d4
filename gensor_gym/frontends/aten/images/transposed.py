"""Transposed convolutions of signals, images and volumes, as several convolutions with stride 1.

Outputs one stride apart read the same weights. They are called a phase, and one convolution computes them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gensor_gym.frontends.aten.moves import joined_parts, padded
from gensor_gym.frontends.aten.places import take
from gensor_gym.frontends.builder import Builder
from gensor_gym.frontends.covered import TABLE

Convolved = Callable[[Builder, str, str, Sequence[int]], str]
"""Function of (builder, x, weights, dilation) that adds a convolution with stride 1 and without padding, and returns its name."""


@dataclass(frozen=True)
class Axis:
    """Sizes of one axis of a transposed convolution with inputs x and weights w.

    Output o is the sum of x[i] w[t] over all i and t with i * stride + t * dilation = o + padding. `extent` is that of x, `taps`
    that of w; `more` is torch's `output_padding`.
    """

    extent: int
    taps: int
    stride: int
    padding: int
    dilation: int
    more: int

    @property
    def made(self) -> int:
        """Return the number of outputs along the axis."""
        return (self.extent - 1) * self.stride - 2 * self.padding + self.dilation * (self.taps - 1) + self.more + 1

    @property
    def phases(self) -> list[Phase]:
        """Return the convolutions that compute the outputs along the axis.

        Number p computes the outputs p, p + stride, p + 2 stride, ..
        """
        return [self._phase(first) for first in range(min(self.stride, self.made))]

    def _phase(self, first: int) -> Phase:
        taps = [t for t in range(self.taps) if (first + self.padding - t * self.dilation) % self.stride == 0]
        wanted = -(-self.made // self.stride)
        if not taps:
            return Phase((), 1, 0, 0)
        nearest = (first + self.padding - taps[0] * self.dilation) // self.stride  # index in x for output `first`, tap 0
        apart = self.dilation // math.gcd(self.dilation, self.stride)
        before, after = apart * (len(taps) - 1) - nearest, wanted + nearest - self.extent
        reads = min(before, after) > -self.extent
        return Phase(tuple(reversed(taps)) if reads else (), apart, before, after)


@dataclass(frozen=True)
class Phase:
    """A convolution with stride 1 that computes the outputs of one phase (all outputs one stride apart) along an axis.

    `taps` are the indices of its weights in the order of the convolution; none if it reads no element of x. `before` and `after`
    are the numbers of zeros around x; a negative number removes elements of x.
    """

    taps: tuple[int, ...]
    dilation: int
    before: int
    after: int


def transposed(
    b: Builder, x: str, w: str, convolved: Convolved, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    more: Sequence[int], groups: int,
) -> str:  # fmt: skip
    """Add the transposed convolution of x [n, c, ..] with weights [c, k/groups, ..], as convolutions with stride 1.

    Each computes the outputs one stride apart, and the results are interleaved. So only the zeros around x are multiplied.
    ValueError for an output without elements.
    """
    taps = b.shapes[w][2:]
    axes = [Axis(*one) for one in zip(b.shapes[x][2:], taps, stride, padding, dilation, more, strict=True)]
    if min(axis.made for axis in axes) < 1:
        raise ValueError(f"a transposed convolution to {[axis.made for axis in axes]} elements: expected 1 or more")
    c, k = b.shapes[x][1], b.shapes[w][1]
    weights = b.transpose(b.reshape(w, (groups, c // groups, k, *taps)), (0, 2, 1, *range(3, 3 + len(taps))))
    weights = b.reshape(weights, (groups * k, c // groups, *taps))
    made = [_of_phase(b, x, weights, convolved, phase, axes) for phase in itertools.product(*(axis.phases for axis in axes))]
    return _interleaved(b, made, axes)


def _of_phase(b: Builder, x: str, weights: str, convolved: Convolved, phases: Sequence[Phase], axes: Sequence[Axis]) -> str:
    """Compute the outputs [n, k, ..] of one convolution, padded to the length of the longest; zeros if it reads no weights.

    `phases` describe it along each of the `axes`.
    """
    if not all(phase.taps for phase in phases):
        zero = b.constant("zero", np.zeros((1,) * (2 + len(axes)), dtype=np.float32))
        return b.repeat(zero, (b.shapes[x][0], b.shapes[weights][0], *(-(-axis.made // axis.stride) for axis in axes)))
    for at, (phase, axis) in enumerate(zip(phases, axes, strict=True), 2):
        x = padded(b, x, at, phase.before, phase.after, 0.0)
        if phase.taps != tuple(range(axis.taps)):
            weights = take(b, weights, [at], np.array(phase.taps))
    return convolved(b, x, weights, [phase.dilation for phase in phases])


def _interleaved(b: Builder, made: Sequence[str], axes: Sequence[Axis]) -> str:
    """Interleave the outputs [n, k, ..] of all phases, which are ordered with the last axis fastest."""
    counts = [len(axis.phases) for axis in axes]
    if math.prod(counts) == 1:
        whole = made[0]
    else:
        n, k, *extents = b.shapes[made[0]]
        parts = [b.reshape(one, (1, *b.shapes[one])) for one in made]
        together = b.reshape(joined_parts(b, parts, 0), (*counts, n, k, *extents))
        rank = len(axes)
        order = [rank, rank + 1, *(place for axis in range(rank) for place in (rank + 2 + axis, axis))]
        whole = b.reshape(b.transpose(together, order), (n, k, *(e * c for e, c in zip(extents, counts, strict=True))))
    for at, axis in enumerate(axes, 2):
        whole = TABLE["aten.slice.Tensor"](b, whole, at, 0, axis.made)
    return whole
