"""Text of the main loop: cooperative loads into shared memory, fragments, accumulation."""

from __future__ import annotations

import math
from contextlib import ExitStack

from gensor_gym.codegen.cuda_index import (
    Site,
    along,
    bounds,
    flat,
    flat_shared,
    global_indices,
    guarded_read,
    in_tile,
    local_indices,
    make_site,
    neutral,
    origin,
    spatial_loops,
)
from gensor_gym.codegen.cuda_map import map_value
from gensor_gym.codegen.cuda_plan import Lanes, Plan
from gensor_gym.codegen.cuda_text import SCALARS, Loop, Writer, remainder, subscript, total
from gensor_gym.graph.resources import CODE_LIMIT_GPU

UNROLLED_LOADS = 8
"""Cooperative loads of one thread that are in flight together: more would only take registers."""


def write_accumulators(out: Writer, plan: Plan) -> None:
    """Declare the accumulators and set them to the neutral."""
    kind, sizes = SCALARS[plan.op.accumulator].name, [f"REG_{plan.names[a].upper()}" for a in wide_axes(plan)]
    if not sizes and plan.op.body != "map":
        out.line(f"{kind} acc = {neutral(plan)};")
        return
    out.line(f"{kind} {subscript('acc', sizes)};")
    if plan.op.body == "map":
        return
    with out.nest(spatial_loops(plan, plan.op.spatial)):
        out.line(f"{accumulator(plan)} = {neutral(plan)};")


def wide_axes(plan: Plan) -> tuple[int, ...]:
    """Spatial axes along which a thread holds more than one element: the dimensions of `acc`."""
    return tuple(a for a in plan.op.spatial if plan.register[a] > 1)


def accumulator(plan: Plan, lane_axis: int = -1, width: int = 1, lane: str = "0") -> str:
    """The accumulator of the site's element."""
    site = make_site(plan, lane_axis, width, lane)
    return subscript("acc", [site.index(a) for a in wide_axes(plan)])


def write_main(out: Writer, plan: Plan) -> None:
    """The loop over the steps of the reduction (or the one pass of an elementwise operator)."""
    with ExitStack() as stack:
        if plan.slices > 1:
            stack.enter_context(out.block("for (int step = first_step; step < last_step; ++step)"))
        elif plan.steps > 1:
            stack.enter_context(out.block(f"for (int step = 0; step < {plan.steps}; ++step)"))
        _write_step_origin(out, plan)
        if any(plan.staged):
            for index, staged in enumerate(plan.staged):
                if staged:
                    _write_stage(out, plan, index)
            out.line("__syncthreads();  // the tiles are complete")
            out.line()
        _write_chunks(out, plan)
        if any(plan.staged) and (plan.steps > 1 or plan.exchange_bytes):
            out.line("__syncthreads();  // every thread is done with the tiles")


def _write_step_origin(out: Writer, plan: Plan) -> None:
    """First reduction index of the step along every axis that has several."""
    divisor = plan.steps
    moving = [a for a in plan.op.reduce if plan.program.grid[a] > 1]
    for a in moving:
        count, name = plan.program.grid[a], plan.names[a]
        divisor //= count
        index = remainder("step", divisor, 0 if a == moving[0] else count)
        out.line(f"const int block_{name} = {index} * STEP_{name.upper()};")


def _write_stage(out: Writer, plan: Plan, index: int) -> None:
    """All threads together copy one read's box into shared memory."""
    read, tile = plan.op.reads[index], plan.shared_tile(index)
    name, width = read.tensor.name, tile.load_width
    trips = -(-tile.loads // plan.threads)
    words = f"{width} elements a load" if width > 1 else "one element a load"
    out.note(f"{name}: box of {' x '.join(map(str, tile.shape))}, {words}")
    loop = [Loop("trip", str(trips), 1, UNROLLED_LOADS if trips > UNROLLED_LOADS else 0)] if trips > 1 else []
    with ExitStack() as stack:
        stack.enter_context(out.nest(loop) if loop else out.block(""))
        if tile.loads > 1 or plan.threads > 1:
            out.line(f"const int load = {total([(1, 'thread'), (1, 'trip * THREADS' if trips > 1 else '0')])};")
        full = f"trip < {trips - 1} || " if 1 < trips <= UNROLLED_LOADS else ""  # known once unrolled
        stack.enter_context(out.guarded([f"{full}load < {tile.loads}"] if tile.loads % plan.threads else []))
        box = _write_box_coordinates(out, plan, index)
        _write_copy(out, plan, index, box)


def _write_copy(out: Writer, plan: Plan, index: int, box: list[str]) -> None:
    """One load into the shared tile, of the element or vector at the coordinates `box`."""
    read, tile = plan.op.reads[index], plan.shared_tile(index)
    name, width = read.tensor.name, tile.load_width
    origins = [origin(plan, a) for a in range(len(plan.names))]
    indices = [total([(1, along(read, d, origins)), (1, box[d])]) for d in range(len(box))]
    address = total(zip(read.strides(), indices, strict=True))
    target = total((stride, box[d]) for d, stride in enumerate(tile.strides))
    if width == 1:
        out.line(f"{name}_tile[{target}] = {guarded_read(plan, read, indices, f'{name}[{address}]')};")
        return
    vector = f"{SCALARS[read.tensor.dtype].vector}{width}"
    load = f"*reinterpret_cast<const {vector} *>(&{name}[{address}])"
    value = guarded_read(plan, read, indices, load, splat(vector, width))
    if tile.store_width == width:
        out.line(f"*reinterpret_cast<{vector} *>(&{name}_tile[{target}]) = {value};")
        return
    out.line(f"const {vector} group = {value};")
    for lane, part in enumerate("xyzw"[:width]):
        shifted = total([(1, target), (1, str(lane * tile.strides[-1]))])
        out.line(f"{name}_tile[{shifted}] = group.{part};")


def _write_box_coordinates(out: Writer, plan: Plan, index: int) -> list[str]:
    """Coordinates in the box of load number `load`, the tensor's own innermost dimension fastest."""
    tile = plan.shared_tile(index)
    box = ["0"] * len(tile.shape)
    counts = _merged_counts(plan, index)
    counts[-1] //= tile.load_width
    live = [d for d, count in enumerate(counts) if count > 1]
    for d in live:
        place = remainder("load", math.prod(counts[d + 1 :]), 0 if d == live[0] else counts[d])
        scale = f" * {tile.load_width}" if d == len(counts) - 1 and tile.load_width > 1 else ""
        out.line(f"const int box_{d} = {place}{scale};")
        box[d] = f"box_{d}"
    return box


def _merged_counts(plan: Plan, index: int) -> list[int]:
    """Lengths to count the box with; a dimension that continues the one before it everywhere takes over its length.

    So it is when the box holds its whole length in the tensor, without gap in shared memory, and nothing is guarded:
    then both are one long dimension, and an address takes one division less.
    """
    read, tile = plan.op.reads[index], plan.shared_tile(index)
    counts = list(tile.shape)
    for d in range(1, len(counts)):
        whole = tile.shape[d] == read.view[d] and tile.strides[d - 1] == tile.strides[d] * tile.shape[d]
        if whole and not bounds(plan, read, d, "") and not bounds(plan, read, d - 1, ""):
            counts[d] *= counts[d - 1]
            counts[d - 1] = 1
    return counts


def splat(vector: str, width: int) -> str:
    """Format text that makes a vector of one value."""
    return vector + "{{" + ", ".join(["{0}"] * width) + "}}"


def _write_chunks(out: Writer, plan: Plan) -> None:
    """Loops over the chunks of a step and over the points of a chunk, around the fragments and the accumulation."""
    with ExitStack() as stack:
        axes = [a for a in plan.op.reduce if plan.chunks[a] > 1]
        if plan.reduce_threads > 1:
            _enter_shared_chunks(out, plan, stack, axes)
        else:
            stack.enter_context(out.nest(_chunk_loops(plan, axes)))
        body = math.prod(plan.register)
        points = [
            Loop(f"point_{plan.names[a]}", f"CHUNK_{plan.names[a].upper()}", step, 1 if body > CODE_LIMIT_GPU else 0)
            for a in plan.op.reduce
            if plan.register[a] > (step := plan.points.width if a == plan.points.axis else 1)
        ]
        stack.enter_context(out.nest(points))
        site = make_site(plan)
        places = {a: total([(1, origin(plan, a)), (1, in_tile(plan, a, site))]) for a in plan.guarded_points}
        skip = [f"{text} < {plan.op.extents[a]}" for a, text in places.items()]
        stack.enter_context(out.guarded(skip))
        for index in range(len(plan.op.reads)):
            _write_fragment(out, plan, index)
        _write_accumulation(out, plan)


def _chunk_loops(plan: Plan, axes: list[int]) -> list[Loop]:
    """Loops over chunks by axis; knob unroll is spent on the innermost loops first."""
    loops: list[Loop] = []
    budget = plan.program.knob("unroll")
    for a in reversed(axes):
        name, factor = plan.names[a], min(budget, plan.chunks[a])
        loops.append(Loop(f"chunk_{name}", f"STEP_{name.upper()}", plan.register[a], factor))
        budget = max(1, budget // plan.chunks[a])
    return loops[::-1]


def _enter_shared_chunks(out: Writer, plan: Plan, stack: ExitStack, axes: list[int]) -> None:
    """Chunks dealt out to the threads that share an output: thread r takes r, r + R, .."""
    chunks, team = math.prod(plan.chunks), plan.reduce_threads
    if chunks == team:
        out.line("const int chunk = reduce_thread;")
    elif chunks < team:
        stack.enter_context(out.block(f"if (const int chunk = reduce_thread; chunk < {chunks})"))
    else:
        out.line(f"#pragma unroll {plan.program.knob('unroll')}")
        stack.enter_context(out.block(f"for (int chunk = reduce_thread; chunk < {chunks}; chunk += REDUCE_THREADS)"))
    divisor = chunks
    for a in axes:
        divisor //= plan.chunks[a]
        index = remainder("chunk", divisor, 0 if a == axes[0] else plan.chunks[a])
        scale = f" * CHUNK_{plan.names[a].upper()}" if plan.register[a] > 1 else ""
        out.line(f"const int chunk_{plan.names[a]} = {index}{scale};")


def fragment_axes(plan: Plan, index: int) -> tuple[int, ...]:
    """Axes that a fragment has a dimension for: wide spatial axes, and the points taken together."""
    rows = plan.op.reads[index].coefficients
    moving = [a for a in range(len(plan.names)) if any(row[a] for row in rows)]
    return tuple(a for a in moving if a in wide_axes(plan) or (a == plan.points.axis and plan.points.width > 1))


def _write_fragment(out: Writer, plan: Plan, index: int) -> None:
    """Declare and fill the registers that hold what this thread needs of one read for the points at hand."""
    read = plan.op.reads[index]
    name, lanes, axes = read.tensor.name, plan.lanes(index), fragment_axes(plan, index)
    with_points = plan.points.axis in axes
    sizes = [str(plan.points.width) if a in plan.op.reduce else f"REG_{plan.names[a].upper()}" for a in axes]
    if sizes:
        out.line(f"{SCALARS[read.tensor.dtype].name} {subscript(f'{name}_reg', sizes)};")
    spatial_lane = lanes.axis if lanes.axis in plan.op.spatial else -1
    loops = spatial_loops(plan, tuple(a for a in axes if a in plan.op.spatial), spatial_lane, lanes.width)
    one_by_one = with_points and lanes.axis != plan.points.axis
    if one_by_one:
        loops.append(Loop("lane", str(plan.points.width)))
    with out.nest(loops):
        _write_fragment_load(out, plan, index, lanes, axes, "lane" if one_by_one else "0")


def _write_fragment_load(
    out: Writer, plan: Plan, index: int, lanes: Lanes, axes: tuple[int, ...], point_lane: str
) -> None:
    """One load, of one element or of a vector, into the fragment."""
    read, tile = plan.op.reads[index], plan.shared[index]
    name, element = read.tensor.name, SCALARS[read.tensor.dtype]
    site = make_site(plan, lanes.axis, lanes.width, "0", point_lane)
    vector = f"{element.vector}{lanes.width}"
    wide = "*reinterpret_cast<const " + vector + " *>(&{})" if lanes.width > 1 else "{}"
    if tile is not None:
        value = wide.format(f"{name}_tile[{flat_shared(read, tile, local_indices(plan, site))}]")
    else:
        indices = global_indices(plan, site)
        positions = [along(read, d, indices) for d in range(len(read.view))]
        load = wide.format(f"{name}[{flat(read, indices)}]")
        value = guarded_read(plan, read, positions, load, splat(vector, lanes.width) if lanes.width > 1 else "{}")
    if lanes.width == 1:
        target = subscript(f"{name}_reg", [_register(plan, site, a) for a in axes])
        out.line(f"{target} = {value};" if axes else f"const {element.name} {target} = {value};")
        return
    out.line(f"const {vector} {name}_group = {value};")
    for lane, part in enumerate("xyzw"[: lanes.width]):
        on_points = lanes.axis == plan.points.axis
        each = make_site(plan, lanes.axis, lanes.width, str(lane), str(lane) if on_points else point_lane)
        out.line(f"{subscript(f'{name}_reg', [_register(plan, each, a) for a in axes])} = {name}_group.{part};")


def _register(plan: Plan, site: Site, axis: int) -> str:
    """Subscript of a fragment along one of its axes."""
    return site.lane[axis] if axis in plan.op.reduce else site.index(axis)


def _write_accumulation(out: Writer, plan: Plan) -> None:
    """Every accumulator takes in its points."""
    op = plan.op
    lane = "lane" if plan.points.width > 1 else "0"
    site = make_site(plan, point_lane=lane)
    operands = [
        subscript(f"{read.tensor.name}_reg", [_register(plan, site, a) for a in fragment_axes(plan, index)])
        for index, read in enumerate(op.reads)
    ]
    target = accumulator(plan)
    loops = spatial_loops(plan, op.spatial)
    if plan.points.width > 1:
        loops.append(Loop("lane", str(plan.points.width)))
    with out.nest(loops):
        if op.body == "map":
            out.line(f"{target} = {map_value(op, operands)};")
        elif op.body == "max":
            out.line(f"{target} = {combine(plan, target, operands[0])};")
        else:
            out.line(f"{target} += {' * '.join(operands)};")


def combine(plan: Plan, left: str, right: str) -> str:
    """Two partial results in one."""
    if plan.op.body != "max":
        return f"{left} + {right}"
    return f"fmaxf({left}, {right})" if plan.op.accumulator == "float32" else f"max({left}, static_cast<int>({right}))"
