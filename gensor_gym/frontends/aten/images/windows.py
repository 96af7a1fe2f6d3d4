"""Rules for convolutions, transposed convolutions and average pooling of images. Signals are images of height 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gensor_gym.dataflow.nodes import Concat
from gensor_gym.frontends.aten.images.transposed import transposed
from gensor_gym.frontends.aten.places import take
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import TABLE
from gensor_gym.frontends.covered import covers as _covers
from gensor_gym.operators.kinds.convolution import conv2d, depthwise_conv2d
from gensor_gym.operators.kinds.pooling import avg_pool2d

Pair = tuple[int, int]


def pair(given: int | Sequence[int]) -> tuple[int, int]:
    """Return (height, width) from two numbers, or from one number for both."""
    return (given, given) if isinstance(given, int) else (given[0], given[-1])


def as_batch(rule: Callable[..., str]) -> Callable[..., str]:
    """Decorate a rule of (builder, x, weights, ..) so that x may lack the batch axis. The result then lacks it too."""

    def of_any(b: Builder, x: str, w: str, *arguments: Any, **options: Any) -> str:
        if len(b.shapes[x]) == len(b.shapes[w]):
            return rule(b, x, w, *arguments, **options)
        made = rule(b, b.reshape(x, (1, *b.shapes[x])), w, *arguments, **options)
        return b.reshape(made, b.shapes[made][1:])

    return of_any


@_covers("conv2d.default")
@as_batch
def convolved(
    b: Builder, x: str, w: str, bias: str | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> str:
    """Add the convolution of images x [n, c, h, w] with weights [k, c/groups, r, s]."""
    (n, c, height, width), (k, _, r, s) = b.shapes[x], b.shapes[w]
    sizes = dict(n=n, c=c, h=height, w=width, r=r, s=s, stride=pair(stride), padding=pair(padding))
    if groups == c == k and pair(dilation) == (1, 1):
        made = b.contract(depthwise_conv2d(**sizes), x, w)  # type: ignore[arg-type]
    else:
        made = b.contract(conv2d(**sizes, k=k, dilation=pair(dilation), groups=groups), x, w)  # type: ignore[arg-type]
    return made if bias is None else b.call("add", made, b.reshape(bias, (k, 1, 1)))


@_covers("convolution.default")
@as_batch
def _convolution(
    b: Builder, x: str, w: str, bias: str | None, stride: Any, padding: Any, dilation: Any, transposed: bool, more: Any,
    groups: int,
) -> str:  # fmt: skip
    if (axes := len(b.shapes[x]) - 2) not in (1, 2, 3):
        raise ValueError(f"a convolution of shape {b.shapes[x]}: expected volumes, images or signals")
    if axes == 3:
        return TABLE["aten.conv_transpose3d.input"](b, x, w, bias, stride, padding, more, groups, dilation)
    if axes == 1:
        flat = [(1, *one) if at in (0, 2) else (0, *one) for at, one in enumerate((stride, padding, dilation, more))]
        tall = [b.reshape(one, (*b.shapes[one][:2], 1, b.shapes[one][2])) for one in (x, w)]
        made = _convolution(b, *tall, bias, *flat[:3], transposed, flat[3], groups)
        return b.reshape(made, (*b.shapes[made][:2], b.shapes[made][3]))
    if transposed:
        return _transposed(b, x, w, bias, pair(stride), pair(padding), pair(dilation), pair(more), groups)
    return convolved(b, x, w, bias, stride, padding, dilation, groups)


def _transposed(
    b: Builder, x: str, w: str, bias: str | None, stride: Pair, padding: Pair, dilation: Pair, more: Pair, groups: int
) -> str:
    """Add a transposed convolution with weights [c, k/groups, r, s]. If windows do not overlap, it is one matrix product."""
    (n, c, height, width), (_, k, r, s) = b.shapes[x], b.shapes[w]
    if groups == 1 and (r, s) == stride and padding == more == (0, 0) and dilation == (1, 1):
        weights = b.reshape(b.transpose(w, (1, 2, 3, 0)), (k * r * s, c, 1, 1))
        each = None if bias is None else b.reshape(b.add(Concat((b.reshape(bias, (k, 1)),) * (r * s), 1), "each"), (k * r * s,))
        spread = b.reshape(convolved(b, x, weights, each), (n, k, r, s, height, width))
        return b.reshape(b.transpose(spread, (0, 1, 4, 2, 5, 3)), (n, k, height * r, width * s))
    made = transposed(
        b, x, w, lambda *given: convolved(*given[:3], dilation=given[3], groups=groups), stride, padding, dilation, more, groups
    )
    return made if bias is None else b.call("add", made, b.reshape(bias, (b.shapes[made][1], 1, 1)))


@dataclass(frozen=True)
class Windows:
    """Windows of pooling along one axis.

    If `up`, their number is rounded up, and the last may reach beyond the padding.
    """

    extent: int
    size: int
    stride: int
    padding: int
    up: bool

    @property
    def count(self) -> int:
        """Return the number of windows. The last begins inside the axis or in the padding before it."""
        room = self.extent + 2 * self.padding - self.size
        found = (-(-room // self.stride) if self.up else room // self.stride) + 1
        return found - (self.up and (found - 1) * self.stride >= self.extent + self.padding)

    @property
    def behind(self) -> int:
        """Return the number of elements that the last window reads beyond the padding."""
        return max((self.count - 1) * self.stride + self.size - self.extent - 2 * self.padding, 0)

    def elements(self, with_padding: bool) -> np.ndarray:
        """Return how many elements of each window are inside the axis, or inside the axis and its padding: int [count]."""
        start = np.arange(self.count) * self.stride - self.padding
        low, high = (-self.padding, self.extent + self.padding) if with_padding else (0, self.extent)
        return np.minimum(start + self.size, high) - np.maximum(start, low)


def windows_along(b: Builder, x: str, size: Any, stride: Any, padding: Any, up: bool) -> list[Windows]:
    """Return the windows of a pooling along height and along width. `up` rounds their numbers up."""
    own = zip(b.shapes[x][-2:], pair(size), pair(stride or size), pair(padding), strict=True)
    return [Windows(*one, up) for one in own]


def as_image(rule: Callable[..., str]) -> Callable[..., str]:
    """Decorate a rule of (builder, x, ..) so that x may lack the batch axis. The result then lacks it too."""

    def of_any(b: Builder, x: str, *arguments: Any, **options: Any) -> str:
        if len(b.shapes[x]) == 4:
            return rule(b, x, *arguments, **options)
        if len(b.shapes[x]) != 3:
            raise ValueError(f"windows of shape {b.shapes[x]}: expected images")
        made = rule(b, b.reshape(x, (1, *b.shapes[x])), *arguments, **options)
        return b.reshape(made, b.shapes[made][1:])

    return of_any


@_covers("avg_pool2d.default")
@as_image
def averaged(
    b: Builder, x: str, size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> str:  # fmt: skip
    """Add average pooling of images: the mean of every window."""
    windows = windows_along(b, x, size, stride, padding, ceil_mode)
    rows, columns = (one.elements(count_include_pad) for one in windows)
    whole, behind = windows[0].size * windows[1].size, (windows[0].behind, windows[1].behind)
    n, c, height, width = b.shapes[x]
    made = b.contract(avg_pool2d(n, c, height, width, *pair(size), pair(stride or size), pair(padding), behind=behind), x)
    factors = whole / (np.outer(rows, columns) if divisor_override is None else np.full((1, 1), divisor_override))
    return made if (factors == 1).all() else b.call("multiply", made, b.constant("share", factors))


@_covers("adaptive_avg_pool2d.default", "_adaptive_avg_pool2d.default")
@as_image
def _adaptive_avg_pool2d(b: Builder, x: str, to: Any) -> str:
    n, c, height, width = b.shapes[x]
    p, q = (extent if wanted is None else wanted for extent, wanted in zip((height, width), pair(to), strict=True))
    if (p, q) == (1, 1):
        return b.mean(x, (2, 3))
    if height % p == 0 and width % q == 0:
        window = height // p, width // q
        return b.contract(avg_pool2d(n, c, height, width, *window, window), x)
    return means_to(b, means_to(b, x, 2, p), 3, q)  # rows first, because pooling along columns transposes


def ends(extent: int, to: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the `to` windows of adaptive pooling along `extent` elements, as two arrays int [to].

    They are the index of each window's first element, and the index after its last.
    """
    numbers = np.arange(to)
    return numbers * extent // to, -(-(numbers + 1) * extent // to)


def means_to(b: Builder, x: str, axis: int, to: int) -> str:
    """Compute the means along an axis over the `to` windows of adaptive pooling. Neighbouring windows may share an element."""
    shape = b.shapes[x]
    first, last = ends(shape[axis], to)
    lengths = (last - first).reshape(-1, *[1] * (len(shape) - axis))
    found, places = windows_of(b, x, axis, first, last)
    if lengths.min() < lengths.max():
        here = b.constant("here", places < last[:, None])
        found = b.map(of("where", b.reshape(here, (*places.shape, *[1] * (len(shape) - axis - 1))), found, 0.0), "inside")
    sums = b.call("divide", b.reduce(found, "sum", [axis + 1]), b.constant("lengths", lengths))
    return b.reshape(sums, (*shape[:axis], to, *shape[axis + 1 :]))


def windows_of(b: Builder, x: str, axis: int, first: np.ndarray, last: np.ndarray) -> tuple[str, np.ndarray]:
    """Add the elements of windows along an axis, which becomes two axes [windows, size].

    Return (name of the elements, their indices int [windows, size]). A shorter window repeats its last element, but its indices
    continue.
    """
    places = first[:, None] + np.arange((last - first).max())
    return take(b, x, [axis], np.minimum(places, last[:, None] - 1)), places
