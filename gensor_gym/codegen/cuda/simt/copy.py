"""C text of the copies into shared memory: all threads of a block together fill the tile of one input.

Threads cover the tile in rounds of a smaller box, so a thread's copies are constant distances apart. Values that are equal in all
steps are computed before the main loop: source and target of a thread's first copy, and, for each copy, a bit that tells whether
it is inside the tensor. If a block's whole box is inside, its copies have no guards.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from gensor_gym.codegen.cuda.index import fill_of, guarded_read, origin
from gensor_gym.codegen.cuda.simt.copies import Copies, distance
from gensor_gym.codegen.cuda.text import SCALARS, Loop, Writer, total

UNROLLED_LOADS = 8
"""Most loads of one thread that are in flight together; more would only take registers."""
UNROLLED_COPIES = 32
"""Most asynchronous copies of one thread in an unrolled loop body."""
UNROLLED_SWIZZLED = 4
"""Most copies into swizzled rows in an unrolled loop body. Each has a separate address, which takes a register."""


@dataclass(frozen=True)
class Share:
    """Distribution of a step's copies over its reduction points, so that a few copies begin between two points.

    The step has `points` points and `groups` groups of copies that begin together. `total` is the number of copies of all inputs,
    and `first` the index of this input's first copy. In the surrounding text, `part` is the current point, or -1 to begin all
    copies. `more` is false if the step does not exist: then zeros are copied, which are not read.
    """

    first: int
    total: int
    groups: int
    points: int

    def begins(self, trip: str) -> str:
        """Return the C condition under which copy `trip` begins at the current reduction point.

        It is constant if loops are unrolled.
        """
        number = f"({trip} + {self.first})" if self.first else trip
        return f"part < 0 || {number} * {self.groups} / {self.total} * {self.points} / {self.groups} == part"


def write_places(out: Writer, copies: Copies) -> None:
    """Write declarations, before the main loop, of the values of an input's copies that are equal in all steps."""
    name, tile = copies.name, copies.tile
    what = f"{copies.width} elements" if copies.width > 1 else "one element"
    kind = "matrix" if tile.axes else "box"
    out.note(f"{name}: {kind} of {' x '.join(map(str, tile.shape))}, {what} a copy, {copies.trips} a thread")
    for d, text in enumerate(copies.first):
        if text != "0":
            out.line(f"const int {name}_{d} = {text};")
    first = [f"{name}_{d}" if text != "0" else "0" for d, text in enumerate(copies.first)]
    scalar = SCALARS[copies.read.tensor.dtype].name
    out.line(f"const {scalar} *{name}_from = {name} + {_source(copies, first)};")
    if copies.shared_distance is not None:
        out.line(f"const int {name}_to = {tile.address(first)};")
    if copies.masked and copies.trips > 1:
        out.line(f"unsigned {name}_inside = 0;  // one bit a copy")
        with out.nest([Loop("trip", str(copies.trips))]):
            out.line(f"if ({' && '.join(copies.guards(_places(copies))[0])}) {name}_inside |= 1u << trip;")
    elif copies.masked:
        out.line(f"const bool {name}_inside = {' && '.join(copies.guards(_places(copies))[0])};")
    if copies.whole_box and copies.whole_box[0]:
        out.line(f"const bool {name}_whole = {' && '.join(copies.whole_box[0])};  // the box is inside")


def _source(copies: Copies, places: list[str]) -> str:
    """Return the C text of the address in the tensor for index `places` of the box.

    The part that changes with the step is omitted.
    """
    return total(zip(copies.read.strides(), copies.positions(places, moving=False), strict=True))


def _places(copies: Copies) -> list[str]:
    return [
        total([(1, f"{copies.name}_{d}" if first != "0" else "0"), (1, moved)])
        for d, (first, moved) in enumerate(zip(copies.first, copies.distances, strict=True))
    ]


def write_registers(out: Writer, copies: Copies) -> None:
    """Write the declaration of the registers that keep the copies' values between statement `load` and statement `store`."""
    out.line(f"{copies.kind} {copies.name}_copy[{copies.trips}];")


def write_copies(out: Writer, copies: Copies, statement: str, buffer: str = "0", share: Share | None = None) -> None:
    """Write the copies of one step. With `share`, each copy begins only at its reduction point.

    `statement` is the kind of copy: `move` (load and store), `load` (to registers `<name>_copy`), `store` (from these registers)
    or `async`. `buffer` is C text of the target buffer's index.
    """
    box = copies.whole_box
    _write_pointers(out, copies, statement, buffer)
    if statement == "store" or not copies.guarded:
        _write_trips(out, copies, statement, guarded=False, share=share)
    elif box is None:
        _write_trips(out, copies, statement, guarded=True, share=share)
    else:
        whole = ([f"{copies.name}_whole"] if box[0] else []) + box[1]
        with out.block(f"if ({' && '.join(whole)})"):
            _write_trips(out, copies, statement, guarded=False)
        with out.block("else"):
            _write_trips(out, copies, statement, guarded=True)


def _write_trips(out: Writer, copies: Copies, statement: str, guarded: bool, share: Share | None = None) -> None:
    trips = copies.trips
    unrolled = trips  # registers between load and store cannot be indexed
    if statement in ("move", "async"):
        most = UNROLLED_LOADS if statement == "move" else UNROLLED_COPIES
        unrolled = most if copies.shared_distance is not None else UNROLLED_SWIZZLED
    loop = Loop("trip", str(trips), 1, min(UNROLLED_LOADS, unrolled) if trips > unrolled else 0)
    with ExitStack() as stack:
        if trips > 1:
            stack.enter_context(out.nest([loop]))
        elif statement == "move" and copies.tile.store_width < copies.width:
            stack.enter_context(out.block(""))
        if share is not None:
            stack.enter_context(out.block(f"if ({share.begins('trip' if trips > 1 else '0')})"))
        stack.enter_context(out.guarded(copies.in_box()))
        _write_copy(out, copies, statement, guarded, share is not None)


def _write_copy(out: Writer, copies: Copies, statement: str, guarded: bool, shared: bool) -> None:
    name, trip, places = copies.name, "trip" if copies.trips > 1 else "0", _places(copies)
    value = "" if statement == "store" else _value(copies, places, guarded, statement == "async")
    if statement == "async":
        size = copies.width * copies.tile.item
        value += (" && more" if ", " in value else ", more") if shared else ""
        out.line(f"copy_async<{size}>(&{_target(copies, places)}, {value});")
    elif statement == "load":
        out.line(f"{name}_copy[{trip}] = {value};")
    else:
        if statement == "move" and copies.tile.store_width < copies.width:
            out.line(f"const {copies.kind} group = {value};")
            value = "group"
        _write_stores(out, copies, places, value or f"{name}_copy[{trip}]")


def _value(copies: Copies, places: list[str], guarded: bool, asynchronous: bool) -> str:
    plan, read, name = copies.plan, copies.read, copies.name
    pointer = f"&{name}_at[{distance(copies.tensor_strides, copies.distances)}]"
    kind = copies.kind
    load = f"*reinterpret_cast<const {kind} *>({pointer})" if copies.width > 1 else pointer[1:]
    if not guarded:
        return pointer if asynchronous else load
    cast = splat(kind, copies.width) if copies.width > 1 else "{}"
    if not copies.masked:
        if asynchronous:
            return f"{pointer}, {' && '.join(sum(copies.guards(places), []))}"
        return guarded_read(plan, read, copies.positions(places), load, cast)
    inside = f"{name}_inside >> trip & 1" if copies.trips > 1 else f"{name}_inside"
    conditions = [inside, *copies.guards(places)[1]]
    text = " && ".join(f"({c})" if " & " in c and len(conditions) > 1 else c for c in conditions)
    return f"{pointer}, {text}" if asynchronous else f"{text} ? {load} : {cast.format(fill_of(plan, read))}"


def _write_pointers(out: Writer, copies: Copies, statement: str, buffer: str) -> None:
    plan, read, name = copies.plan, copies.read, copies.name
    scalar = SCALARS[read.tensor.dtype].name
    if statement != "store":
        strides = read.axis_strides()
        step = total((strides[a], origin(plan, a)) for a in plan.op.reduce)
        out.line(f"const {scalar} *{name}_at = {name}_from{f' + {step}' if step != '0' else ''};")
    if statement != "load":
        first = "0" if copies.shared_distance is None else f"{name}_to"
        place = total([(plan.stage_bytes // copies.tile.item, buffer), (1, first)])
        out.line(f"{scalar} *{name}_into = {name}_tile{f' + {place}' if place != '0' else ''};")


def _target(copies: Copies, places: list[str], lane: int = 0) -> str:
    name, tile = copies.name, copies.tile
    if copies.shared_distance is None:
        last = len(places) - 1
        return f"{name}_into[{tile.address([total([(1, p)], lane if d == last else 0) for d, p in enumerate(places)])}]"
    return f"{name}_into[{total([(1, copies.shared_distance)], lane * tile.strides[-1])}]"


def _write_stores(out: Writer, copies: Copies, places: list[str], value: str) -> None:
    tile, width = copies.tile, copies.width
    if tile.store_width == width:
        target = _target(copies, places)
        out.line(f"*reinterpret_cast<{copies.kind} *>(&{target}) = {value};" if width > 1 else f"{target} = {value};")
        return
    for lane, part in enumerate("xyzw"[:width]):
        out.line(f"{_target(copies, places, lane)} = {value}.{part};")


def splat(vector: str, width: int) -> str:
    """Return a format string that makes a C vector whose elements all have one value."""
    return vector + "{{" + ", ".join(["{0}"] * width) + "}}"
