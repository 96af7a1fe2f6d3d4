"""C text that copies the operands' tiles of one step into shared memory, with zeros outside the tensor.

Threads cover a tile in rounds of a smaller box, as on CUDA cores (`cuda/simt/copies.py`), so a thread's copies are constant
distances apart. Values that are equal in all steps are computed before the main loop: source and target of the first copy, and,
for each copy, a bit that tells whether it is inside the tensor.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from gensor_gym.codegen.cuda.index import flat, origin
from gensor_gym.codegen.cuda.mma.plan import MatrixPlan, OperandTile
from gensor_gym.codegen.cuda.simt.copies import MASK_BITS, digits, distance, fewest_rounds
from gensor_gym.codegen.cuda.text import SCALARS, Loop, Writer, total

UNROLLED = 8
"""Largest number of a thread's copies in one unrolled loop body; more would only take registers."""
_WORDS = {1: "int", 2: "int2", 4: "int4"}


def shared_address(tile: OperandTile, item: int, row: str, column: str) -> str:
    """Return the C text of the offset, in elements, of a row and a column in a tile in shared memory."""
    if tile.swizzle is not None:
        shift, mask = tile.swizzle.shift, tile.swizzle.mask
        scale = (16 // item * tile.swizzle.factor).bit_length() - 1
        column = f"({column} ^ (({row} >> {shift} & {mask}) << {scale}))"
    return total([(tile.pitch, row), (1, column)])


@dataclass(frozen=True)
class TileCopies:
    """Distribution of the copies of one operand's tile into shared memory over the threads of a block.

    Each thread makes at most one copy in every round.
    """

    plan: MatrixPlan
    tile: OperandTile

    @property
    def name(self) -> str:
        """The tensor's name, which is the prefix of the C names declared for its copies."""
        return self.plan.op.reads[self.tile.read].tensor.name

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Axes of the tile by descending stride in the tensor: the last axis is the most contiguous."""
        strides, inner = self.plan.op.reads[self.tile.read].axis_strides(), self.tile.axes[-1]
        return tuple(sorted(self.tile.axes, key=lambda a: (strides[a], a != inner), reverse=True))

    @cached_property
    def sizes(self) -> dict[int, int]:
        """Number of elements of one copy along each axis."""
        return {a: self.tile.width if a == self.tile.axes[-1] else 1 for a in self.order}

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Number of copies along every axis of `order`."""
        shape = dict(zip(self.tile.axes, self.tile.shape, strict=True))
        return tuple(shape[a] // self.sizes[a] for a in self.order)

    @cached_property
    def lanes(self) -> tuple[int, ...]:
        """Number of copies that all threads make in one round, along every axis of `order`."""
        if self.tile.shifts < 0:
            return fewest_rounds(self.counts, self.plan.threads)
        counts = [1 if a == self.tile.shifts else count for a, count in zip(self.order, self.counts, strict=True)]
        return fewest_rounds(tuple(counts), self.plan.threads)  # so that a copy's shift is constant once loops are unrolled

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """Number of rounds in which the tile is covered, along every axis of `order`."""
        return tuple(-(-count // lanes) for count, lanes in zip(self.counts, self.lanes, strict=True))

    @cached_property
    def trips(self) -> int:
        """Number of copies of one thread, in all its rounds."""
        found = 1
        for rounds in self.rounds:
            found *= rounds
        return found

    @property
    def trip(self) -> str:
        """C text of the index of a thread's copy: the loop's variable `trip`, or 0 if the thread has one copy."""
        return "trip" if self.trips > 1 else "0"

    @cached_property
    def moved(self) -> dict[int, str]:
        """C text of the distance from a thread's first copy to its copy `trip`, along each axis. It is equal for all threads."""
        places = digits(self.trip, self.rounds)
        parts = zip(self.order, self.lanes, places, strict=True)
        return {a: total([(lanes * self.sizes[a], place)]) for a, lanes, place in parts}

    @cached_property
    def first(self) -> dict[int, str]:
        """C text of the index in the tile at which a thread's first copy begins, along each axis."""
        places = digits("thread", self.lanes)
        return {a: total([(self.sizes[a], place)]) for a, place in zip(self.order, places, strict=True)}

    def places(self, moved: bool) -> dict[int, str]:
        """Return the C text of the index in the tile at which a copy begins, along each axis.

        It is copy `trip` if `moved`, else the thread's first copy.
        """
        names = {a: f"{self.name}_{self.plan.names[a]}" if text != "0" else "0" for a, text in self.first.items()}
        return {a: total([(1, name), (1, self.moved[a] if moved else "0")]) for a, name in names.items()}

    def indices(self, steps: bool) -> list[str]:
        """Return the C text of the axis values at which a copy begins, along each axis of the operator.

        It is copy `trip` in this step if `steps`, else the first copy in step 0.
        """
        plan, places = self.plan, self.places(moved=steps)
        origins = [origin(plan, a) if steps or a in plan.op.spatial else "0" for a in range(len(plan.names))]
        return [total([(1, origins[a]), (1, places.get(a, "0"))]) for a in range(len(plan.names))]

    @cached_property
    def conditions(self) -> tuple[list[str], list[str]]:
        """C conditions under which copy `trip` is inside the tensor: (conditions equal in all steps, other conditions)."""
        plan = self.plan
        steps = [f"block_{plan.names[a]}" for a in plan.op.reduce if plan.program.grid[a] > 1]
        every = plan.conditions(self.tile, self.indices(steps=True))
        changing = [condition for condition in every if any(step in re.findall(r"\w+", condition) for step in steps)]
        return [condition for condition in every if condition not in changing], changing

    @property
    def masked(self) -> bool:
        """Whether the conditions that are equal in all steps are evaluated before the main loop and kept in one bit per copy."""
        lasting = self.plan.steps > 1 and self.trips <= MASK_BITS and self.tile.shifts < 0
        return bool(self.conditions[0]) and lasting

    @cached_property
    def in_tile(self) -> list[str]:
        """C conditions under which a thread has a copy `trip`, because a round may have idle threads or exceed the tile."""
        places, busy = self.places(moved=True), 1
        for lanes in self.lanes:
            busy *= lanes
        found = [f"thread < {busy}"] if busy < self.plan.threads else []
        overhung = [a for a, count, lanes in zip(self.order, self.counts, self.lanes, strict=True) if count % lanes]
        shape = dict(zip(self.tile.axes, self.tile.shape, strict=True))
        return found + [f"{places[a]} < {shape[a]}" for a in overhung]

    @cached_property
    def straight(self) -> bool:
        """Whether a thread's copies are constant distances apart in shared memory: all its rounds have the same swizzle."""
        swizzle = self.tile.swizzle
        if swizzle is None:
            return True
        rows, units = (swizzle.mask + 1) << swizzle.shift, (swizzle.mask + 1) * swizzle.factor * 16 // self.plan.item
        for a, lanes, rounds in zip(self.order, self.lanes, self.rounds, strict=True):
            inner = a == self.tile.axes[-1]
            step, period = (lanes * self.sizes[a], units) if inner else (lanes * self.tile.row_stride(a), rows)
            if rounds > 1 and step % period:
                return False
        return True

    def address(self, places: dict[int, str]) -> str:
        """Return the C text of the offset in a buffer of shared memory, in bytes, for indices `places` along the tile's axes."""
        row = total((self.tile.row_stride(a), places[a]) for a in self.tile.axes[:-1])
        column = places[self.tile.axes[-1]]
        if self.tile.swizzle is not None:
            row, column = (f"({text})" if " " in text else text for text in (row, column))
        element = shared_address(self.tile, self.plan.item, row, column)
        return total([(self.plan.item, element)], self.tile.offset)

    @property
    def target(self) -> str:
        """C text of the byte offset of copy `trip` from the pointer `<name>_into`."""
        if not self.straight:
            return self.address(self.places(moved=True))
        strides = [self.tile.pitch * self.tile.row_stride(a) for a in self.tile.axes[:-1]] + [1]
        return distance(tuple(self.plan.item * stride for stride in strides), [self.moved[a] for a in self.tile.axes])

    @property
    def source(self) -> str:
        """C text of the distance in elements from the pointer `<name>_at` to the first element of copy `trip`."""
        strides = self.plan.op.reads[self.tile.read].axis_strides()
        return distance(tuple(strides[a] for a in self.tile.axes), [self.moved[a] for a in self.tile.axes])


def tile_copies(plan: MatrixPlan) -> tuple[TileCopies, TileCopies]:
    """Return the distributions of the copies of A's tile and of B's tile."""
    return TileCopies(plan, plan.a_tile), TileCopies(plan, plan.b_tile)


def write_places(out: Writer, plan: MatrixPlan) -> None:
    """Write declarations, before the main loop, of the values of both operands' copies that are equal in all steps."""
    for copies in tile_copies(plan):
        read, name, tile = plan.op.reads[copies.tile.read], copies.name, copies.tile
        width = f"{tile.width} elements" if tile.width > 1 else "one element"
        out.note(f"{name}: {' x '.join(map(str, tile.shape))}, {width} a copy, {copies.trips} a thread")
        for a, text in copies.first.items():
            if text != "0":
                out.line(f"const int {name}_{plan.names[a]} = {text};")
        scalar = SCALARS[read.tensor.dtype].name
        out.line(f"const {scalar} *{name}_from = {name} + {flat(read, copies.indices(steps=False))};")
        if copies.straight:
            out.line(f"const int {name}_to = {copies.address(copies.places(moved=False))};")
        if not copies.masked:
            continue
        fixed = " && ".join(copies.conditions[0])
        if copies.trips == 1:
            out.line(f"const bool {name}_inside = {fixed};")
            continue
        out.line(f"unsigned {name}_inside = 0;  // one bit a copy")
        with out.nest([Loop("trip", str(copies.trips))]):
            out.line(f"if ({fixed}) {name}_inside |= 1u << trip;")


def write_held(out: Writer, plan: MatrixPlan) -> None:
    """Write the declaration of the registers that keep loaded elements while the block multiplies, until they are stored."""
    for copies in tile_copies(plan):
        if copies.tile.way == "held":
            out.line(f"{_word(copies)} {copies.name}_held[{copies.trips}];")


def write_next(out: Writer, plan: MatrixPlan, step: str) -> None:
    """Write declarations of pointers `<name>_next` to the elements of step `step`.

    Every iteration of the main loop advances them. There are no pointers if several reduce axes have steps, because then steps
    are not equal distances apart.
    """
    for copies in tile_copies(plan) if _distance(plan, plan.a_tile.read) else ():
        scalar = SCALARS[plan.op.reads[copies.tile.read].tensor.dtype].name
        place = total([(_distance(plan, copies.tile.read), step)])
        out.line(f"const {scalar} *{copies.name}_next = {copies.name}_from + {place};  // of the step to copy")


def _distance(plan: MatrixPlan, read: int) -> int:
    """Return the distance in elements, in the tensor of input `read`, from one step of the reduction to the next.

    It is 0 if steps are not equal distances apart.
    """
    moving = [a for a in plan.op.reduce if plan.program.grid[a] > 1]
    return plan.op.reads[read].axis_strides()[moving[0]] * plan.block[moving[0]] if len(moving) == 1 else 0


def write_copies(out: Writer, plan: MatrixPlan, stage: str, ahead: bool) -> None:
    """Write the copies of both operands' tiles to the buffer of shared memory at byte `stage`.

    With `ahead`, the copies are for a later step: operands whose `way` is `held` are only loaded to registers, and `write_puts`
    stores them.
    """
    for copies in tile_copies(plan):
        keep = ahead and copies.tile.way == "held"
        _write_source(out, copies, ahead)
        if not keep:
            _write_target(out, copies, stage)
        with out.nest(_trips(copies)), out.guarded(copies.in_tile):
            _write_copy(out, copies, keep)


def write_puts(out: Writer, plan: MatrixPlan, stage: str) -> None:
    """Write the stores of the elements that wait in registers to the buffer of shared memory at byte `stage`."""
    for copies in tile_copies(plan):
        if copies.tile.way == "held":
            _write_target(out, copies, stage)
            with out.nest(_trips(copies)), out.guarded(copies.in_tile):
                out.line(f"{_put(copies)} = {copies.name}_held[{copies.trip}];")


def write_rounding(out: Writer, plan: MatrixPlan, stage: str) -> None:
    """Write code in which each thread rounds to tf32 the elements that it copied to the buffer at byte `stage`.

    A thread sees its own copies once it has waited for them. The following barrier makes the results visible to all threads.
    """
    for copies in tile_copies(plan) if plan.op.dtype == "tf32" else ():
        width = copies.tile.width
        with out.block(""), out.nest(_trips(copies)), out.guarded(copies.in_tile):
            _write_target(out, copies, stage)
            out.line(f"{_WORDS[width]} &word = *reinterpret_cast<{_WORDS[width]} *>(&{copies.name}_into[{copies.target}]);")
            out.line(f"{_WORDS[width]} rounded = word;")
            for part in [f".{letter}" for letter in "xyzw"[:width]] if width > 1 else [""]:
                out.line(f"rounded{part} = round_tf32(__int_as_float(rounded{part}));")
            out.line("word = rounded;")


def _write_source(out: Writer, copies: TileCopies, ahead: bool) -> None:
    plan, read = copies.plan, copies.plan.op.reads[copies.tile.read]
    strides, moved = read.axis_strides(), _distance(copies.plan, copies.tile.read)
    scalar = SCALARS[read.tensor.dtype].name
    if ahead and moved:
        out.line(f"const {scalar} *{copies.name}_at = {copies.name}_next;")
        out.line(f"{copies.name}_next += {moved};")
        return
    step = total((strides[a], origin(plan, a)) for a in plan.op.reduce)
    out.line(f"const {scalar} *{copies.name}_at = {copies.name}_from{f' + {step}' if step != '0' else ''};")


def _write_target(out: Writer, copies: TileCopies, stage: str) -> None:
    place = total([(1, stage), (1, f"{copies.name}_to" if copies.straight else "0")])
    out.line(f"unsigned char *{copies.name}_into = shared_memory{f' + {place}' if place != '0' else ''};")


def _write_copy(out: Writer, copies: TileCopies, keep: bool) -> None:
    name, tile = copies.name, copies.tile
    fixed, changing = copies.conditions
    if copies.masked:
        fixed = [f"({name}_inside >> trip & 1)" if copies.trips > 1 else f"{name}_inside"]
    inside = " && ".join(fixed + changing)
    source = f"{name}_at[{copies.source}]"
    if tile.way == "async":
        target = f"&{name}_into[{copies.target}]"
        out.line(f"copy_async<{tile.width * copies.plan.item}>({target}, &{source}, {inside or 'true'});")
        return
    if tile.shifts >= 0:
        out.line(f"{f'{name}_held[{copies.trip}]' if keep else _put(copies)} = {_write_shifted(out, copies)};")
        return
    kind = _word(copies)
    value = source if tile.width == 1 else f"*reinterpret_cast<const {kind} *>(&{source})"
    if inside:
        value = f"{inside} ? {value} : {'0' if kind not in ('int2', 'int4') else kind + '{}'}"
    out.line(f"{f'{name}_held[{copies.trip}]' if keep else _put(copies)} = {value};")


def _write_shifted(out: Writer, copies: TileCopies) -> str:
    """Write the loads of the two aligned words that contain an unaligned copy; return the C text of the copy's value.

    Each word is entirely inside or entirely outside the tensor.
    """
    plan, tile, name = copies.plan, copies.tile, copies.name
    read, width = plan.op.reads[tile.read], tile.width
    row, last, indices = read.coefficients[-1], len(read.view) - 1, copies.indices(steps=True)
    column = total(zip(row, indices, strict=True), read.offset[last])
    beyond = -read.offset[last] // width * width + width if read.offset[last] < 0 else 0
    shift = total([(row[tile.shifts], copies.moved[tile.shifts])], read.offset[last] + beyond)
    out.line(f"const int shift = ({shift}) % {width}, column = {column} - shift;")
    others = plan.conditions(tile, indices, without=last)
    for word, at in (("low", 0), ("high", width)):
        place = total([(1, "column")], at)
        inside = [*others, f"{place} >= 0", f"{place} < {read.view[last]}", *(["shift > 0"] if at else [])]
        load = f"*reinterpret_cast<const int4 *>(&{name}_at[{total([(1, copies.source)], at)} - shift])"
        out.line(f"const int4 {word} = {' && '.join(inside)} ? {load} : int4{{}};")
    return f"shift_bytes(low, high, shift * {plan.item})"


def _trips(copies: TileCopies) -> list[Loop]:
    """Return the loop over a thread's copies, in a list; empty for a single copy.

    It is fully unrolled if there are at most `UNROLLED` copies, if they are held in registers, which cannot be indexed, or if
    each is combined from two aligned words.
    """
    whole = copies.tile.way == "held" or copies.tile.shifts >= 0
    unroll = UNROLLED if not whole and copies.trips > UNROLLED else 0
    return [Loop("trip", str(copies.trips), 1, unroll)] if copies.trips > 1 else []


def _word(copies: TileCopies) -> str:
    tile, plan = copies.tile, copies.plan
    return SCALARS[plan.op.reads[tile.read].tensor.dtype].name if tile.width == 1 else _WORDS[tile.width * plan.item // 4]


def _put(copies: TileCopies) -> str:
    return f"*reinterpret_cast<{_word(copies)} *>(&{copies.name}_into[{copies.target}])"
