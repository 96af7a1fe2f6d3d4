"""C text of fragments: registers with a thread's elements of one input at the current reduction points."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.codegen.cuda.bytes import is_hidden
from gensor_gym.codegen.cuda.index import (
    Point,
    Site,
    along,
    flat,
    flat_shared,
    global_indices,
    guarded_read,
    in_tile,
    make_site,
    spatial_loops,
)
from gensor_gym.codegen.cuda.plan import BlockPlan
from gensor_gym.codegen.cuda.simt.copy import splat
from gensor_gym.codegen.cuda.text import SCALARS, Loop, Writer, computed, subscript, widened


@dataclass(frozen=True)
class Fragment:
    """A fragment: the registers with a thread's elements of input `index` at the reduction point `point`.

    A `point` of None means the point of the surrounding loops. `<name>_<tile>` is the C name of the tile in shared memory, and
    `<name>_<registers>` that of the registers.
    """

    plan: BlockPlan
    index: int
    point: Point | None = None
    tile: str = "tile"
    registers: str = "reg"

    @property
    def name(self) -> str:
        """The tensor's name."""
        return self.plan.op.reads[self.index].tensor.name

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes of the operator along which the array of registers has a dimension."""
        return fragment_axes(self.plan, self.index)

    def site(self, lane: str = "0", point_lane: str = "0") -> Site:
        """Return the position of the element that a statement loads.

        `lane` is its index in a vector, and `point_lane` its index among the points that are computed together.
        """
        lanes = self.plan.lanes(self.index)
        return make_site(self.plan, lanes.axis, lanes.width, lane, point_lane, self.point)

    def register(self, site: Site) -> str:
        """Return the C text of the register that holds the element at a position."""
        return subscript(f"{self.name}_{self.registers}", subscripts(self.plan, site, self.axes))


def fragment_axes(plan: BlockPlan, index: int) -> tuple[int, ...]:
    """Return the axes along which the registers of input `index` have a dimension.

    They are spatial axes with several elements, and the axis of `plan.points`.
    """
    rows = plan.op.reads[index].coefficients
    moving = [a for a in range(len(plan.names)) if any(row[a] for row in rows)]
    wide = [a for a in plan.op.spatial if plan.register[a] > 1]
    return tuple(a for a in moving if a in wide or (a == plan.points.axis and plan.points.width > 1))


def subscripts(plan: BlockPlan, site: Site, axes: tuple[int, ...]) -> list[str]:
    """Return the C subscripts of a fragment's registers along its axes, for the element at position `site`."""
    return [site.lane[a] if a in plan.op.reduce else site.index(a) for a in axes]


def thread_place(plan: BlockPlan, index: int) -> str:
    """Return the C text of the offset of the thread's first element in a tile in shared memory.

    It is "0" in swizzled tiles, in which elements are not constant distances from the first.
    """
    read, tile = plan.op.reads[index], plan.shared_tile(index)
    if tile.swizzle:
        return "0"
    zero = make_site(plan, point=("0",) * len(plan.names))
    first = [in_tile(plan, a, Site(("0",) * len(plan.names), zero.lane)) for a in range(len(plan.names))]
    return flat_shared(read, tile, [text if a in plan.op.spatial else "0" for a, text in enumerate(first)])


def declare(out: Writer, fragment: Fragment) -> None:
    """Write the declaration of a fragment's registers."""
    plan = fragment.plan
    kind = computed(plan.op.reads[fragment.index].tensor.dtype)
    sizes = [str(plan.points.width) if a in plan.op.reduce else f"REG_{plan.names[a].upper()}" for a in fragment.axes]
    out.line(f"{kind} {subscript(f'{fragment.name}_{fragment.registers}', sizes)};")


def write_fragment(out: Writer, fragment: Fragment, new: bool = False) -> None:
    """Write the loads that fill a fragment.

    With `new`, the load of a fragment of one register also declares it.
    """
    plan, axes, lanes = fragment.plan, fragment.axes, fragment.plan.lanes(fragment.index)
    spatial_lane = lanes.axis if lanes.axis in plan.op.spatial else -1
    loops = spatial_loops(plan, tuple(a for a in axes if a in plan.op.spatial), spatial_lane, lanes.width)
    one_by_one = plan.points.axis in axes and lanes.axis != plan.points.axis
    if one_by_one:
        loops.append(Loop("lane", str(plan.points.width)))
    with out.nest(loops):
        _write_load(out, fragment, "lane" if one_by_one else "0", new)


def _write_load(out: Writer, fragment: Fragment, point_lane: str, new: bool) -> None:
    plan, lanes, name = fragment.plan, fragment.plan.lanes(fragment.index), fragment.name
    value, dtype = _value(fragment, point_lane), plan.op.reads[fragment.index].tensor.dtype
    element = "opaque({})" if is_hidden(plan, fragment.index) else widened(dtype, "{}")
    if lanes.width == 1:
        kind = f"const {computed(dtype)} " if new else ""
        out.line(f"{kind}{fragment.register(fragment.site(point_lane=point_lane))} = {element.format(value)};")
        return
    vector = f"{SCALARS[dtype].vector}{lanes.width}"
    out.line(f"const {vector} {name}_group = {value};")
    for lane, part in enumerate("xyzw"[: lanes.width]):
        on_points = lanes.axis == plan.points.axis
        site = fragment.site(str(lane), str(lane) if on_points else point_lane)
        out.line(f"{fragment.register(site)} = {element.format(f'{name}_group.{part}')};")


def _value(fragment: Fragment, point_lane: str) -> str:
    plan, name, width = fragment.plan, fragment.name, fragment.plan.lanes(fragment.index).width
    read, tile = plan.op.reads[fragment.index], plan.shared[fragment.index]
    site = fragment.site(point_lane=point_lane)
    vector = f"{SCALARS[read.tensor.dtype].vector}{width}"
    wide = "*reinterpret_cast<const " + vector + " *>(&{})" if width > 1 else "{}"
    if tile is not None:
        from_first = plan.stages > 1 and not tile.swizzle and fragment.tile != "tile"
        places = [in_tile(plan, a, site, from_first) for a in range(len(plan.names))]
        return wide.format(f"{name}_{fragment.tile}[{flat_shared(read, tile, places, from_first)}]")
    indices = global_indices(plan, site)
    positions = [along(read, d, indices) for d in range(len(read.view))]
    load = wide.format(f"{name}[{flat(read, indices)}]")
    return guarded_read(plan, read, positions, load, splat(vector, width) if width > 1 else "{}")
