"""How a schedule of Winograd's algorithm divides its work, and where it keeps points and sums in a thread's scratch memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.images import IMAGES, order_of
from gensor_gym.operators.kinds.winograd import POINTS, tiles_of
from gensor_gym.operators.types import Operator
from gensor_gym.winograd.schedule import WinogradSchedule

LINE = 16
"""Number of float32 elements in a cache line."""
_WAY, _APART = 1024, 4 * LINE
"""In elements: distance of addresses that map to the same set of a first-level cache, and by how much planes are moved apart.

Planes at multiples of the first would evict one another, since an image tile has an element in each of them.
"""
_ROWS = 512
"""Rows whose length is a multiple of this number of elements get one more line, so that they map to different sets."""


Number = Any
"""Type of a field's value: an integer, or an array of them."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a convolution on a machine; those that depend on fields of schedules are of one schedule, or of many as arrays."""

    op: Operator
    hardware: Hardware

    @property
    def channels(self) -> int:
        """Number of input channels."""
        return self.op.extents[self.op.reduce[0]]

    @property
    def outputs(self) -> int:
        """Number of output channels."""
        return self.op.extents[self.op.channel_axis]

    @cached_property
    def tiles(self) -> int:
        """Number of image tiles of all images."""
        images, down, across = tiles_of(self.op)
        return images * down * across

    @property
    def together(self) -> int:
        """Number of image tiles that stay in one block: a row of them if results have channels first, else one.

        Lines of several tiles are then stored at once.
        """
        return tiles_of(self.op)[2] if order_of(self.op, "result") == IMAGES[0] else 1

    def group_of(self, panels: Number, panel: Number) -> Number:
        """Return the number of output channels of a group: of at most `panels` panels of `panel` channels."""
        return np.minimum(panels, -(-self.outputs // panel)) * panel

    def blocks_of(self, block: Number, apart: Number) -> Number:
        """Return the number of blocks of about `block` image tiles.

        Without tasks for groups of channels (`apart`), it is a multiple of the number of cores, unless there are fewer tiles.
        """
        units = np.where(apart == 1, 1, self.hardware.units)
        wanted = -(-self.tiles // block)
        return np.minimum(self.tiles // self.together, -(-wanted // units) * units)


@dataclass(frozen=True)
class Layout(Sizes):
    """Division of a convolution by a schedule: blocks of image tiles, groups of output channels, and the scratch memory."""

    schedule: WinogradSchedule

    @property
    def panel(self) -> int:
        """Number of output channels in a panel."""
        return self.schedule.value("vectors") * self.hardware.lanes

    @property
    def group(self) -> int:
        """Number of output channels whose sums are kept at the same time: whole panels."""
        return int(self.group_of(self.schedule.value("panels"), self.panel))

    @property
    def groups(self) -> int:
        """Number of groups of output channels. The last one may be smaller."""
        return -(-self.outputs // self.group)

    @cached_property
    def blocks(self) -> int:
        """Number of blocks of image tiles."""
        return int(self.blocks_of(self.schedule.value("block"), self.schedule.value("apart")))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of image tiles that blocks have, the largest last."""
        small, rest = divmod(self.tiles // self.together, self.blocks)
        return (small * self.together, (small + 1) * self.together) if rest else (small * self.together,)

    @property
    def tasks(self) -> int:
        """Number of tasks of the parallel loop."""
        return self.blocks * (self.groups if self.schedule.value("apart") else 1)

    @property
    def row(self) -> int:
        """Distance in elements of image tiles in a plane of points."""
        return _pitch(-(-self.channels // self.hardware.lanes) * self.hardware.lanes)

    @property
    def plane(self) -> int:
        """Distance in elements of planes of points."""
        return _moved(self.sizes[-1] * self.row)

    @property
    def sum_row(self) -> int:
        """Distance in elements of image tiles in a plane of sums."""
        return _pitch(self.group)

    @property
    def sum_plane(self) -> int:
        """Distance in elements of planes of sums."""
        return _moved(self.sizes[-1] * self.sum_row)

    @property
    def unit(self) -> int:
        """Number of elements of a thread's scratch memory: the points of a block, then the sums of a group."""
        return POINTS * (self.plane + self.sum_plane)

    @property
    def filters(self) -> int:
        """Number of elements of the transformed filters, in whole panels: [group][point][panel][input channel][channel]."""
        return POINTS * self.channels * (-(-self.outputs // self.panel) * self.panel)


def _pitch(length: int) -> int:
    return length + LINE if length % _ROWS == 0 else length


def _moved(size: int) -> int:
    """Return the smallest distance of planes of `size` elements that is `_APART` beyond a multiple of `_WAY`."""
    return -(-(size - _APART) // _WAY) * _WAY + _APART if size > _APART else _APART
