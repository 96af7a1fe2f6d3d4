"""C text of indices and flat addresses of elements, and of the conditions under which an address may be read."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from gensor_gym.codegen.cuda.plan import BlockPlan
from gensor_gym.codegen.cuda.text import Loop, total
from gensor_gym.codegen.cuda.tiles.shared import SharedTile
from gensor_gym.codegen.cuda.tiles.tiling import is_padded_along, reach
from gensor_gym.operators.bodies import limited
from gensor_gym.operators.inputs import to_bfloat16
from gensor_gym.operators.types import Access

Point = tuple[str, ...]
"""A reduction point (one combination of reduction indices), as C text.

For each axis of the operator, it is the index within the step; "0" for spatial axes; [A].
"""


@dataclass(frozen=True)
class Site:
    """A position in a thread's register tile: a group of adjacent elements, and one element of the group.

    `group` is C text of the group's first index along each axis, usually a loop variable. `lane` is C text of the element's index
    within the group.
    """

    group: tuple[str, ...]  # [A]
    lane: tuple[str, ...]  # [A]

    def index(self, axis: int) -> str:
        """Return the C text of the element's index along an axis.

        It counts within the register tile (spatial axis) or within the step of the reduction (reduce axis).
        """
        return total([(1, self.group[axis]), (1, self.lane[axis])])


def make_site(
    plan: BlockPlan, lane_axis: int = -1, width: int = 1, lane: str = "0", point_lane: str = "0", point: Point | None = None
) -> Site:
    """Return the position of an element inside the loops over the register tile, in steps of `width` elements along `lane_axis`.

    `lane` is the index within the group along `lane_axis`, and `point_lane` along the axis of `plan.points`. `point` has the
    indices along the reduce axes; its default is `looped_point(plan)`.
    """
    group, lanes = list(point or looped_point(plan)), []
    for a, name in enumerate(plan.names):
        if a in plan.op.spatial:
            group[a] = f"reg_{name}" if plan.register[a] > (width if a == lane_axis else 1) else "0"
        lanes.append(point_lane if a == plan.points.axis else lane if a == lane_axis else "0")
    return Site(tuple(group), tuple(lanes))


def looped_point(plan: BlockPlan) -> Point:
    """Return the current indices along the reduce axes as C text of loop variables.

    One loop runs over the chunks of a step, one over the points of a chunk.
    """
    texts = []
    for a, name in enumerate(plan.names):
        step = plan.points.width if a == plan.points.axis else 1
        chunk = f"chunk_{name}" if plan.chunks[a] > 1 else "0"
        inside = f"point_{name}" if a in plan.op.reduce and plan.register[a] > step else "0"
        texts.append(total([(1, chunk), (1, inside)]))
    return tuple(texts)


def in_tile(plan: BlockPlan, axis: int, site: Site, from_first: bool = False) -> str:
    """Return the C text of the index of this thread's element within the block tile (spatial axis) or the step (reduction axis).

    `site` is the element's position in the register tile. With `from_first`, the index is relative to the thread's first element.
    """
    name, group, lane = plan.names[axis], site.group[axis], (1, site.lane[axis])
    if axis in plan.op.reduce:
        return total([(1, group), lane])
    threads, inner = plan.program.threads[axis], plan.inner[axis]
    first = (1, f"first_{name}" if threads > 1 and not from_first else "0")
    if threads == 1 or inner == plan.register[axis]:
        return total([first, (1, group), lane])
    if inner == 1:
        return total([first, (threads, group)])
    constant = f"INNER_{name.upper()}"
    if group == "0":
        return total([first, lane])
    return total([first, (inner * threads, f"{group} / {constant}"), (1, f"{group} % {constant}"), lane])


def global_indices(plan: BlockPlan, site: Site) -> list[str]:
    """Return the C text of the index of this thread's element along every axis of the operator, [A].

    `site` is the element's position in the register tile.
    """
    return [total([(1, origin(plan, a)), (1, in_tile(plan, a, site))]) for a in range(len(plan.names))]


def origin(plan: BlockPlan, axis: int) -> str:
    """Return the C text of the first index of the block tile (spatial axis) or of the step of the reduction (reduce axis)."""
    return f"block_{plan.names[axis]}" if plan.program.grid[axis] > 1 else "0"


def along(access: Access, dimension: int, indices: list[str]) -> str:
    """Return the C text of the index along one dimension of a tensor that an access reads for the axis values `indices`."""
    return total(zip(access.coefficients[dimension], indices, strict=True), access.offset[dimension])


def flat(access: Access, indices: list[str]) -> str:
    """Return the C text of the flat address in the tensor that an access reads for the axis values `indices`."""
    strides = access.strides()
    return total((stride, along(access, d, indices)) for d, stride in enumerate(strides))


def flat_shared(access: Access, tile: SharedTile, indices: list[str], from_first: bool = False) -> str:
    """Return the C text of the flat address in a tile in shared memory.

    `indices` are axis values within the block tile and the step. With `from_first`, values and address are relative to the
    thread's first element.
    """
    return tile.address(tile.places(access, indices, from_first))


def bounds(plan: BlockPlan, access: Access, dimension: int, index: str) -> list[str]:
    """Return the C conditions under which `index` along a dimension is inside the tensor, except conditions that always hold."""
    below, limit = reach(plan, access, dimension) if not plan.unguarded else (False, 0)
    return ([f"{index} >= 0"] if below else []) + ([f"{index} < {limit}"] if limit else [])


def whole(plan: BlockPlan, access: Access) -> list[tuple[int, str]] | None:
    """Return the conditions under which the box of a tensor that a block reads in a step is entirely inside.

    They are (dimension, C condition) pairs; the result is None if the box is never inside.
    """
    found = []
    origins = [origin(plan, a) for a in range(len(plan.names))]
    for d, size in enumerate(plan.program.box(access, 1).shape):
        below, limit = reach(plan, access, d)
        first = along(access, d, origins)
        if d == len(access.view) - 1 and (window := plan.window(access)).width > 1:
            first, size = total([(1, first)], -window.lead), window.length(size)
        conditions = [f"{first} >= 0"] if below else []
        conditions += [f"{total([(1, first)], size - 1)} < {limit}"] if limit else []
        if any(is_known(condition) is False for condition in conditions):
            return None
        found += [(d, condition) for condition in conditions if is_known(condition) is None]
    return found


def is_known(condition: str) -> bool | None:
    """Return the value of a C comparison of constants; None if it contains names."""
    found = re.fullmatch(r"([-+\d ]+) (<|>=) (\d+)", condition)
    if found is None:
        return None
    value, limit = sum(int(n) for n in re.findall(r"[-+]?\d+", found[1].replace(" ", ""))), int(found[3])
    return value < limit if found[2] == "<" else value >= limit


def neutral(plan: BlockPlan) -> str:
    """Return the C text of the reduction's identity, such as 0 for a sum.

    It is the initial value of accumulators, and what points outside contribute.
    """
    identity = limited(plan.op.reduction.identity, plan.op.dtype)
    return str(int(identity)) if plan.op.accumulator == "int32" else _float(identity)


def _outside(plan: BlockPlan, padded: bool) -> str:
    """Return the C text of the value for an element outside its tensor: the pad value if `padded`, else the identity."""
    value = plan.op.pad_value if padded else limited(plan.op.reduction.identity, plan.op.dtype)
    dtype = plan.op.reads[0].tensor.dtype
    if dtype in ("int8", "float8_e4m3fn"):  # only products read 8-bit floats outside, where values are 0
        return str(int(value))
    if dtype == "float16":
        return hex(int(np.float16(value).view(np.uint16)))
    if dtype == "bfloat16":
        return hex(int(to_bfloat16(np.array([value]))[0]))
    return _float(value)


def _float(value: float) -> str:
    return f"{value!r}f" if math.isfinite(value) else f"__int_as_float({np.float32(value).view(np.uint32):#x})"


def fill_of(plan: BlockPlan, access: Access) -> str | None:
    """Return the C text of the value that stands for elements of a tensor outside it.

    The result is None if the value differs between padding and points outside the reduction.
    """
    kinds = {
        is_padded_along(plan.op, access, d) for d in range(len(access.view)) if any(reach(plan, access, d))
    }
    values = {_outside(plan, padded) for padded in kinds}
    return next(iter(values)) if len(values) == 1 else None if values else _outside(plan, padded=False)


def guarded_read(plan: BlockPlan, access: Access, indices: list[str], load: str, cast: str = "{}") -> str:
    """Return the C text of a guarded load.

    It is `load` inside the tensor, the pad value in the padding, and the reduction's identity outside the reduction.

    `indices` are the access's indices along its dimensions. `cast` is a format string that turns a fill value into a vector.
    """
    padding: list[str] = []
    outside: list[str] = []
    for d, index in enumerate(indices):
        chosen = padding if is_padded_along(plan.op, access, d) else outside
        chosen += bounds(plan, access, d, index)
    pad, fill = (cast.format(_outside(plan, padded)) for padded in (True, False))
    if pad == fill or not padding or not outside:
        conditions = padding + outside
        value = pad if padding else fill
        return f"{' && '.join(conditions)} ? {load} : {value}" if conditions else load
    return f"{' && '.join(outside)} ? ({' && '.join(padding)} ? {load} : {pad}) : {fill}"


def spatial_loops(plan: BlockPlan, axes: tuple[int, ...], lane_axis: int = -1, width: int = 1) -> list[Loop]:
    """Return loops over the register tile along `axes`, in steps of `width` along `lane_axis`.

    Loops of one iteration are omitted.
    """
    loops = []
    for a in axes:
        step = width if a == lane_axis else 1
        if plan.register[a] > step:
            loops.append(Loop(f"reg_{plan.names[a]}", f"REG_{plan.names[a].upper()}", step))
    return loops
