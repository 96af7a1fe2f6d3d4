"""The rules of the construction graph a second time: slow, plain Python, on Operator and Hardware objects.

Written from the texts of `gensor_gym/graph` and of the design, sharing no code with them but the names of actions and
knobs. A state holds the operator's own axes; slots and rows appear only where it is translated from and to a Schedule.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gensor_gym.graph.actions import ACTIONS, SPACES
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.schedule import Schedule, make_row
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_LEVELS
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Access, Operator
from tests.support import oracle_matrix as matrix
from tests.support.oracle_gpu import Gpu
from tests.support.oracle_sizes import compact, cpu_sizes, sizes

ITEM = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "int32": 4}
VALUES = {knob.name: knob.values for knob in KNOBS}


@dataclass(frozen=True)
class State:
    """tiles[level][axis], vthread[axis], the level under construction, value of every knob."""

    tiles: tuple[tuple[int, ...], ...]
    vthread: tuple[int, ...]
    level: int
    knobs: tuple[tuple[str, int], ...]

    def knob(self, name: str) -> int:
        return dict(self.knobs)[name]


@dataclass
class Oracle(Gpu):
    """Masks, transitions and legality of one task."""

    op: Operator
    hw: Hardware
    space: str

    def __post_init__(self) -> None:
        self.gpu = self.hw.kind == "gpu"
        self.levels = 2 if self.gpu else 3
        self.axes = range(len(self.op.axes))
        self.spatial = [a for a in self.axes if self.op.axes[a].kind == "spatial"]
        self.reduce = [a for a in self.axes if self.op.axes[a].kind == "reduce"]
        self.extents = [axis.extent for axis in self.op.axes]
        self.ladders = (
            compact(self.extents, self.levels)
            if self.space in ("compact", "medium")
            else [sizes(n) if self.gpu else cpu_sizes(n) for n in self.extents]
        )
        if self.space == "extended" and self.gpu:
            for axis, ladder in enumerate(self.ladders):
                least = matrix.least_tile(self.op, self.hw, axis)
                ladder.extend(n for n in (2, 4, 8, 16, 32, 64, 128) if max(ladder) < n <= least)
        self.usable = {knob.name: self._usable(knob.name) for knob in KNOBS}
        self.fields = [*self.op.reads, self.op.write]

    def slot(self, axis: int) -> int:
        """Spatial axes end at slot 4, reduce axes begin at slot 5."""
        return 5 - len(self.spatial) + axis

    def axis_of(self, slot: int) -> int | None:
        found = [a for a in self.axes if self.slot(a) == slot]
        return found[0] if found else None

    def read(self, schedule: Schedule) -> State:
        """The state of a schedule (slots without an axis are not looked at)."""
        slots = [self.slot(a) for a in self.axes]
        tiles = tuple(tuple(int(schedule.tile[level][s]) for s in slots) for level in range(self.levels))
        knobs = tuple((knob.name, schedule.knob(knob.name)) for knob in KNOBS)
        return State(tiles, tuple(int(schedule.vthread[s]) for s in slots), schedule.level, knobs)

    def write(self, state: State) -> Schedule:
        """The schedule of a state."""
        rows = [[1] * MAX_AXES for _ in range(MAX_LEVELS)]
        vthread = [1] * MAX_AXES
        for a in self.axes:
            vthread[self.slot(a)] = state.vthread[a]
            for level in range(MAX_LEVELS):
                rows[level][self.slot(a)] = state.tiles[min(level, self.levels - 1)][a]
        return Schedule(make_row(rows, vthread, state.level, dict(state.knobs)))

    # knobs

    def _usable(self, name: str) -> list[int]:
        knob = next(k for k in KNOBS if k.name == name)
        if knob.kind != "both" and knob.kind != self.hw.kind:
            return [knob.default]
        points = math.prod(self.extents[a] for a in self.reduce)
        long_spatial = [a for a in self.spatial if self.extents[a] > 1]
        repeats = points > 1 and any(self.staged(read) for read in self.op.reads)
        limits = {
            "split_k": lambda v: v <= points,
            "reduce_threads": lambda v: v <= points,
            "thread_split": lambda v: v <= points,
            "unroll": lambda v: v == 1 or points > 1,
            "vector": lambda v: v == 1 or any(self._loads_wide(read, v) for read in self.op.reads),
            "raster": lambda v: v == 1 or len(long_spatial) >= 2,
            "shared_layout": lambda v: v == 0 or any(self.staged(read) for read in self.op.reads),
            "convolution": lambda v: v == 0 or (self.op.name == "conv2d" and (v == 3) == self.gpu),
            "stages": lambda v: v == 1 or (repeats and v <= self.buffers()),
            "register_buffer": lambda v: v == 1 or repeats,
            "warp_tile": lambda v: v == 0 or self._has_patches(),
            "lane_map": lambda v: v == 0 or self._has_patches(),
            "tensor_core": lambda v: v in matrix.choices(self.op, self.hw),
            "persistent": lambda v: v == 0 or 2 in matrix.choices(self.op, self.hw),
            "cluster": lambda v: v == 1 or matrix.clusters(self.op, self.hw, v),
            "pack_b": lambda v: v == 0 or len(self.op.reads) > 1,
            "prefetch": lambda v: v == 0 or bool(self.reduce),
        }
        return [v for v in knob.available if limits.get(name, lambda _: True)(v)]

    def buffers(self) -> int:
        """Shared buffers at most: before cp.async the second is filled by way of registers."""
        return 2 if self.hw.arch in ("sm_70", "sm_75") else 5

    def _has_patches(self) -> bool:
        """Whether a warp can lie over rows and columns of threads that share elements."""
        shared = any(self.staged(read) for read in self.op.reads)
        return shared and len(self.spatial) >= 2 and all(self.extents[a] > 1 for a in self.spatial[-2:])

    def _loads_wide(self, read: Access, width: int) -> bool:
        last = read.coefficients[-1]
        movers = [(a, c) for a, c in enumerate(last) if c != 0 and self.extents[a] > 1]
        alone = read.offset[-1] == 0 and [c for _, c in movers] == [1]
        return read.view[-1] % width == 0 and (alone or len(movers) > 1)

    def initial(self) -> State:
        """Tiles 1, registers under construction, knobs by the rule."""
        knobs = {name: values[0] for name, values in self.usable.items()}
        wanted = {"vector": 4, "shared_layout": 1, "unroll": 4} if self.gpu else self._cpu_rule()
        for name, value in wanted.items():
            knobs[name] = max(v for v in self.usable[name] if v <= value)
        ones = tuple(1 for _ in self.axes)
        return State(tuple(ones for _ in range(self.levels)), ones, 0, tuple(knobs.items()))

    def _cpu_rule(self) -> dict[str, int]:
        if self.op.name == "conv2d":
            return {"unroll": 4, "convolution": 2, "pack_a": int(not self.pointwise()), "pack_b": 0}
        wanted = {"unroll": 4, "convolution": 0, "pack_a": 0, "pack_b": 0}
        for name, read in zip(("pack_a", "pack_b"), self.op.reads, strict=False):
            missing = any(self.extents[a] > 1 and not self.depends(read, a) for a in self.spatial)
            bytes_ = math.prod(read.view) * ITEM[read.tensor.dtype]
            strided = self.stride(read, self.vector_axis(0)) > 1
            wanted[name] = int(self.op.body == "multiply_add" and missing and (bytes_ > 16 * 1024 or strided))
        return wanted

    # accesses

    def index(self, access: Access, point: list[int]) -> list[int]:
        pairs = zip(access.coefficients, access.offset, strict=True)
        return [sum(c * x for c, x in zip(row, point, strict=True)) + start for row, start in pairs]

    def stride(self, access: Access, axis: int) -> int:
        """Elements that the flat index moves when an axis advances by one."""
        flat = []
        for x in (0, 1):
            place = 0
            for size, i in zip(access.view, self.index(access, [x if a == axis else 0 for a in self.axes]), strict=True):
                place = place * size + i
            flat.append(place)
        return flat[1] - flat[0]

    def depends(self, access: Access, axis: int) -> bool:
        return self.stride(access, axis) != 0

    def box(self, access: Access, tile: tuple[int, ...]) -> list[int]:
        """Shape of the box between the first and the last index of a tile."""
        low, high = self.index(access, [0] * len(tile)), self.index(access, [t - 1 for t in tile])
        return [b - a + 1 for a, b in zip(low, high, strict=True)]

    def staged(self, read: Access) -> bool:
        """Threads of a block share elements: some spatial axis is missing, or two axes meet in one dimension."""
        missing = any(self.extents[a] > 1 and all(row[a] == 0 for row in read.coefficients) for a in self.spatial)
        return missing or any(len(self.movers(read, d)) > 1 for d in range(len(read.view)))

    def movers(self, access: Access, dimension: int) -> list[int]:
        return [a for a in self.axes if access.coefficients[dimension][a] and self.extents[a] > 1]

    def shared_inner(self, read: Access) -> int:
        """The last dimension where a spatial axis moves it, else the one that the innermost such axis moves alone."""
        last = len(read.view) - 1
        if set(self.movers(read, last)) & set(self.spatial):
            return last
        for axis in reversed(self.spatial):
            alone = [d for d in range(last) if self.movers(read, d) == [axis] and read.coefficients[d][axis] == 1]
            if alone:
                return alone[0]
        return last

    def vector_axis(self, convolution: int) -> int:
        """Axis of a CPU's vectors."""
        if convolution == 1:
            return self.op.channel_axis
        inner = self.spatial[-1]
        if convolution == 2:
            return inner
        dense = self.extents[inner] > 1 and all(self.stride(read, inner) <= 1 for read in self.op.reads)
        dots = [a for a in self.reduce if self.extents[a] > 1 and self._runs_along_all_reads(a)]
        return inner if dense or not dots else dots[-1]

    def _runs_along_all_reads(self, axis: int) -> bool:
        """Whether every read is contiguous along the axis, which meets no other axis in a dimension."""
        reads = self.op.reads
        windows = [set(self.movers(read, d)) for read in reads for d in range(len(read.view))]
        return all(self.stride(r, axis) == 1 for r in reads) and all(w == {axis} for w in windows if axis in w)

    def pointwise(self) -> bool:
        """Whether output pixels stand where their input pixels do: a 1x1 window at stride 1 without padding."""
        sizes = dict(self.op.arguments)
        odd = [sizes.get("stride", 1), sizes.get("padding", 0)] != [1, 0]
        return sizes["r"] == sizes["s"] == 1 and not odd

    # resources

    def fits(self, state: State) -> bool:
        return self._fits_gpu(state) if self.gpu else self._fits_cpu(state)

    def _points(self, state: State, level: int) -> int:
        return math.prod(state.tiles[level][a] for a in self.reduce)

    def _steps(self, state: State, level: int) -> int:
        walked = list(self.reduce)
        if state.knob("tensor_core") == 2 and matrix.in_window_rows(self.op):
            walked.pop()  # all places of a row are in one step
        return math.prod(math.ceil(self.extents[a] / state.tiles[level][a]) for a in walked)

    def vectors(self, state: State) -> tuple[int, int]:
        """(vector registers along the register tile, accumulators)."""
        axis = self.vector_axis(state.knob("convolution"))
        fused = self.spatial[-2:] if state.knob("convolution") == 2 else (axis,)
        full, rest = divmod(math.prod(state.tiles[0][a] for a in fused), self.hw.lanes)
        along = full + bin(rest).count("1")
        return along, along * math.prod(state.tiles[0][a] for a in self.spatial if a not in fused)

    def tile_bytes(self, state: State, level: int) -> int:
        tile = state.tiles[level]
        return sum(math.prod(self.box(access, tile)) * ITEM[access.tensor.dtype] for access in self.fields)

    def _fits_cpu(self, state: State) -> bool:
        capacity = {level.name: level.capacity for level in self.hw.memory}
        along, accumulators = self.vectors(state)
        share = max(capacity.get("l3", 0) // self.hw.units, 4 * capacity["l2"])
        return (
            accumulators + along + 1 <= self.hw.vector_registers
            and self.tile_bytes(state, 1) <= capacity["l2"]
            and self.tile_bytes(state, 2) <= share
            and accumulators * self._points(state, 0) * state.knob("unroll") <= 512
            and not (state.knob("convolution") == 1 and state.knob("pack_b") == 0)
            and not (state.knob("convolution") == 2 and state.knob("thread_split") > 1)
            and not (state.knob("convolution") == 2 and state.knob("pack_a") == 0 and not self.pointwise())
            and state.knob("thread_split") <= self._steps(state, 2)
        )

    # primitives

    def apply(self, state: State, action: int) -> State:
        """A primitive as a total function, whatever its result takes of the hardware."""
        primitive, slot, knob = ACTIONS[action].primitive, ACTIONS[action].axis, ACTIONS[action].knob
        if primitive in ("raise", "lower"):
            return self._move_knob(state, knob, 1 if primitive == "raise" else -1)
        if primitive == "cache":
            return replace(state, level=min(state.level + 1, self.levels - 1))
        if primitive == "inverse_cache":
            untouched = state.level > 0 and state.tiles[state.level] == state.tiles[state.level - 1]
            return replace(state, level=state.level - 1) if untouched else state
        axis = None if slot is None else self.axis_of(slot)
        if primitive == "stop" or axis is None:
            return state
        if primitive in ("tile", "inverse_tile"):
            return self._move_tile(state, axis, primitive == "tile")
        return self._move_vthread(state, axis, primitive == "set_vthread")

    def _move_tile(self, state: State, axis: int, up: bool) -> State:
        level, current = state.level, state.tiles[state.level][axis]
        base = state.tiles[level - 1][axis] if level else state.vthread[axis]
        if level == 0 and state.knob("tensor_core") > 0:
            base = matrix.fragment(self, state, axis)
        found = [s for s in self.ladders[axis] if s % base == 0 and (s > current if up else s < current)]
        size = (min(found) if up else max(found)) if found else current
        rows = [
            tuple(size if level_ >= level and a == axis else row[a] for a in self.axes) for level_, row in enumerate(state.tiles)
        ]
        return replace(state, tiles=tuple(rows))

    def _move_vthread(self, state: State, axis: int, up: bool) -> State:
        if not self.gpu or axis not in self.spatial:
            return state
        tile, current = state.tiles[0][axis], state.vthread[axis]
        divisors = [d for d in range(1, tile + 1) if tile % d == 0 and (d > current if up else d < current)]
        chosen = (min(divisors) if up else max(divisors)) if divisors else current
        return replace(state, vthread=tuple(chosen if a == axis else v for a, v in enumerate(state.vthread)))

    def _move_knob(self, state: State, name: str, step: int) -> State:
        values = self.usable[name]
        place = values.index(state.knob(name)) + step
        value = values[place] if 0 <= place < len(values) else state.knob(name)
        return replace(state, knobs=tuple((k, value if k == name else v) for k, v in state.knobs))

    def transition(self, state: State, action: int) -> tuple[State, bool]:
        """(successor, whether the action is legal)."""
        if ACTIONS[action].primitive == "stop":
            return state, True
        if ACTIONS[action].primitive not in SPACES[self.space]:
            return state, False
        if ACTIONS[action].knob is not None and not self._moves(ACTIONS[action].knob):
            return state, False
        after = self.apply(state, action)
        return (after, True) if after != state and self.fits(after) else (state, False)

    def _moves(self, name: str) -> bool:
        if self.space == "medium":
            return name in ("vector", "shared_layout", "convolution", "pack_a", "pack_b", "loop_order")
        return "raise" in SPACES[self.space]

    def mask(self, state: State) -> list[bool]:
        return [self.transition(state, action)[1] for action in range(len(ACTIONS))]

    # legality and enumeration

    def is_legal(self, schedule: Schedule) -> bool:
        """Whether a row is a node of the graph and fits."""
        places = zip(KNOBS, schedule.row[-len(KNOBS) :], strict=True)
        if not 0 <= schedule.level < self.levels or not all(0 <= i < len(knob.values) for knob, i in places):
            return False
        state = self.read(schedule)
        usable = all(value in self.usable[name] for name, value in state.knobs)
        if not usable or min(schedule.row) < 0 or self.write(state) != schedule:
            return False
        return all(self._is_chain(state, a) for a in self.axes) and self.fits(state)

    def _is_chain(self, state: State, axis: int) -> bool:
        tiles = [row[axis] for row in state.tiles]
        chain = [state.vthread[axis], *tiles]
        if any(t not in self.ladders[axis] for t in tiles) or chain[0] < 1 or any(b % a for a, b in itertools.pairwise(chain)):
            return False
        closed = all(t == tiles[state.level] for t in tiles[state.level :])
        return closed and (chain[0] == 1 or (self.gpu and axis in self.spatial))

    def enumerate(self) -> Iterator[State]:
        """Every legal state with all levels opened, knobs only where the space moves them."""
        start = self.initial()
        virtual = "set_vthread" in SPACES[self.space] and self.gpu
        chains = []
        for a in self.axes:
            found = itertools.product(self.ladders[a], repeat=self.levels)
            rising = [c for c in found if all(y % x == 0 for x, y in itertools.pairwise(c))]
            counts = range(1, max(self.ladders[a]) + 1) if virtual and a in self.spatial else [1]
            chains.append([(*c, v) for c in rising for v in counts if c[0] % v == 0])
        values = [[(name, v) for v in (self.usable[name] if self._moves(name) else [start.knob(name)])] for name in VALUES]
        for chosen in itertools.product(*chains):
            tiles = tuple(tuple(c[level] for c in chosen) for level in range(self.levels))
            for knobs in itertools.product(*values):
                state = State(tiles, tuple(c[-1] for c in chosen), self.levels - 1, knobs)
                if self.fits(state):
                    yield state
