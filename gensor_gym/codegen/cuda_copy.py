"""Text of the copies into shared memory: all threads of a block together fill the tile of one read.

What does not change from step to step is written before the main loop: where a thread's first copy comes from and goes
to, or those of all its copies where the later ones are not a constant distance apart, and one bit a copy for whether it
is inside the tensor. A block whose whole box is inside takes copies without guards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from gensor_gym.codegen.cuda_copies import Copies, distance, split
from gensor_gym.codegen.cuda_index import fill_of, guarded_read, origin
from gensor_gym.codegen.cuda_text import SCALARS, Loop, Writer, total

UNROLLED_LOADS = 8
"""Cooperative loads of one thread that are in flight together: more would only take registers."""
UNROLLED_COPIES = 32
"""Asynchronous copies of one thread that are written out one after the other."""

def write_places(out: Writer, copies: Copies) -> None:
    """Before the main loop: what stays the same from step to step."""
    name, tile = copies.name, copies.tile
    what = f"{copies.width} elements" if copies.width > 1 else "one element"
    kind = "matrix" if tile.axes else "box"
    out.note(f"{name}: {kind} of {' x '.join(map(str, tile.shape))}, {what} a copy, {copies.trips} a thread")
    texts = split(copies, "thread")
    places = [f"{name}_{d}" if text != "0" else "0" for d, text in enumerate(texts)]
    scalar = SCALARS[copies.read.tensor.dtype].name
    with _declared(out, name, texts):
        if copies.distances is not None:
            out.line(f"const {scalar} *{name}_from = {name} + {_source(copies, places)};")
        if copies.shared_distance is not None:
            out.line(f"const int {name}_to = {tile.address(places)};")
        if copies.kept:
            out.line(f"int {name}_from[{copies.trips}];")
        if copies.kept and copies.shared_distance is None and not tile.swizzle:
            out.line(f"int {name}_to[{copies.trips}];")
        if copies.masked and copies.trips > 1:
            out.line(f"unsigned {name}_inside = 0;  // one bit a copy")
        if copies.kept or (copies.masked and copies.trips > 1):
            _write_kept(out, copies)
        elif copies.masked:
            out.line(f"const bool {name}_inside = {' && '.join(copies.guards(_known_places(copies))[0])};")
    if copies.whole_box and copies.whole_box[0]:
        out.line(f"const bool {name}_whole = {' && '.join(copies.whole_box[0])};  // the box is inside")


def _write_kept(out: Writer, copies: Copies) -> None:
    """Addresses and masks of all copies of a thread."""
    name, tile = copies.name, copies.tile
    with out.nest([Loop("trip", str(copies.trips))]), out.guarded(_in_box(copies)), _coordinates(out, copies) as places:
        if copies.kept:
            out.line(f"{name}_from[trip] = {_source(copies, places)};")
        if copies.kept and copies.shared_distance is None and not tile.swizzle:
            out.line(f"{name}_to[trip] = {tile.address(places)};")
        if copies.masked:
            out.line(f"if ({' && '.join(copies.guards(places)[0])}) {name}_inside |= 1u << trip;")


def _source(copies: Copies, places: list[str]) -> str:
    """Address in the tensor of a place in the box, as far as no step changes it."""
    return total(zip(copies.read.strides(), copies.positions(places, moving=False), strict=True))


@contextmanager
def _coordinates(out: Writer, copies: Copies) -> Iterator[list[str]]:
    """Coordinates in the box of copy `trip` of this thread, declared before the lines inside as far as these use them."""
    if copies.distances is not None:
        yield _known_places(copies)
        return
    texts = split(copies, "(thread + trip * THREADS)")
    with _declared(out, "box", texts):
        yield [f"box_{d}" if text != "0" else "0" for d, text in enumerate(texts)]


@contextmanager
def _declared(out: Writer, prefix: str, texts: list[str]) -> Iterator[None]:
    """Constants `<prefix>_<number>`, declared before the lines that are written inside, as far as these use them."""
    at = len(out.lines)
    yield
    used = set(re.findall(r"\w+", "\n".join(out.lines[at:])))
    lines = [f"const int {prefix}_{d} = {text};" for d, text in enumerate(texts) if f"{prefix}_{d}" in used]
    out.lines[at:at] = ["  " * out.depth + line for line in lines]


def _known_places(copies: Copies) -> list[str]:
    """Coordinates of copy `trip`, a known distance from those of the thread's first."""
    live = [count > 1 for count in copies.counts]
    return [
        total([(1, f"{copies.name}_{d}" if alive else "0"), (1, distance)])
        for d, (distance, alive) in enumerate(zip(copies.distances or (), live, strict=True))
    ]


def _in_box(copies: Copies) -> list[str]:
    """Condition under which copy `trip` of this thread exists."""
    tile, threads = copies.tile, copies.plan.threads
    if tile.loads % threads == 0:
        return []
    full = f"trip < {copies.trips - 1} || " if 1 < copies.trips <= UNROLLED_LOADS else ""  # known once unrolled
    return [f"{full}{total([(1, 'thread'), (1, 'trip * THREADS' if copies.trips > 1 else '0')])} < {tile.loads}"]


def write_registers(out: Writer, copies: Copies) -> None:
    """Declare the registers between `load` and `store`."""
    out.line(f"{copies.kind} {copies.name}_copy[{copies.trips}];")


def write_copies(out: Writer, copies: Copies, statement: str, buffer: str = "0") -> None:
    """The copies of one step.

    `statement` is what a copy does: `move` (load and store), `load` (into registers `<name>_copy`), `store` (from
    there) or `async`. `buffer` is the number of the buffer that is filled.
    """
    box = copies.whole_box
    _write_pointers(out, copies, statement, buffer)
    if statement == "store" or not copies.guarded:
        _write_trips(out, copies, statement, guarded=False)
    elif box is None:
        _write_trips(out, copies, statement, guarded=True)
    else:
        whole = ([f"{copies.name}_whole"] if box[0] else []) + box[1]
        with out.block(f"if ({' && '.join(whole)})"):
            _write_trips(out, copies, statement, guarded=False)
        with out.block("else"):
            _write_trips(out, copies, statement, guarded=True)


def _write_trips(out: Writer, copies: Copies, statement: str, guarded: bool) -> None:
    """The loop over a thread's copies."""
    trips = copies.trips
    unrolled = UNROLLED_LOADS if statement == "move" else trips if statement != "async" else UNROLLED_COPIES
    loop = Loop("trip", str(trips), 1, UNROLLED_LOADS if trips > unrolled else 0)
    names = copies.distances is None or (statement == "move" and copies.tile.store_width < copies.width)
    with ExitStack() as stack:
        if trips > 1:
            stack.enter_context(out.nest([loop]))
        elif names:
            stack.enter_context(out.block(""))
        stack.enter_context(out.guarded(_in_box(copies)))
        _write_copy(out, copies, statement, guarded)


def _write_copy(out: Writer, copies: Copies, statement: str, guarded: bool) -> None:
    """One copy."""
    name, trip = copies.name, "trip" if copies.trips > 1 else "0"
    with _coordinates(out, copies) as places:
        value = "" if statement == "store" else _value(copies, places, guarded, statement == "async")
        if statement == "async":
            size = copies.width * copies.tile.item
            out.line(f"copy_async<{size}>(&{_target(copies, places)}, {value});")
        elif statement == "load":
            out.line(f"{name}_copy[{trip}] = {value};")
        else:
            if statement == "move" and copies.tile.store_width < copies.width:
                out.line(f"const {copies.kind} group = {value};")
                value = "group"
            _write_stores(out, copies, places, value or f"{name}_copy[{trip}]")


def _value(copies: Copies, places: list[str], guarded: bool, asynchronous: bool) -> str:
    """What a copy loads; of an asynchronous one the arguments that say so."""
    plan, read, name = copies.plan, copies.read, copies.name
    pointer = f"&{_from(copies, places)}"
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
    """Pointers for all copies of a step: `<name>_at` in the tensor, `<name>_into` in the buffer that is filled."""
    plan, read, name = copies.plan, copies.read, copies.name
    scalar = SCALARS[read.tensor.dtype].name
    if statement != "store" and not copies.decoded:
        strides, start = read.axis_strides(), f"{name}_from" if copies.distances is not None else name
        step = total((strides[a], origin(plan, a)) for a in plan.op.reduce)
        out.line(f"const {scalar} *{name}_at = {start}{f' + {step}' if step != '0' else ''};")
    if statement != "load":
        first = "0" if copies.shared_distance is None else f"{name}_to"
        place = total([(plan.stage_bytes // copies.tile.item, buffer), (1, first)])
        out.line(f"{scalar} *{name}_into = {name}_tile{f' + {place}' if place != '0' else ''};")


def _from(copies: Copies, places: list[str]) -> str:
    """The element of the tensor that copy `trip` begins with."""
    if copies.distances is not None:
        return f"{copies.name}_at[{distance(copies.tensor_strides, copies.distances)}]"
    if copies.kept:
        return f"{copies.name}_at[{copies.name}_from[trip]]"
    return f"{copies.name}[{total(zip(copies.read.strides(), copies.positions(places), strict=True))}]"


def _target(copies: Copies, places: list[str], lane: int = 0) -> str:
    """The place in the shared tile of a copy's element number `lane`."""
    name, tile = copies.name, copies.tile
    if tile.swizzle or (copies.decoded and copies.shared_distance is None):
        last = len(places) - 1
        return f"{name}_into[{tile.address([total([(1, p)], lane if d == last else 0) for d, p in enumerate(places)])}]"
    place = copies.shared_distance or f"{name}_to[trip]"
    return f"{name}_into[{total([(1, place)], lane * tile.strides[-1])}]"


def _write_stores(out: Writer, copies: Copies, places: list[str], value: str) -> None:
    """Into the tile at once, or element by element."""
    tile, width = copies.tile, copies.width
    if tile.store_width == width:
        target = _target(copies, places)
        out.line(f"*reinterpret_cast<{copies.kind} *>(&{target}) = {value};" if width > 1 else f"{target} = {value};")
        return
    for lane, part in enumerate("xyzw"[:width]):
        out.line(f"{_target(copies, places, lane)} = {value}.{part};")


def splat(vector: str, width: int) -> str:
    """Format text that makes a vector of one value."""
    return vector + "{{" + ", ".join(["{0}"] * width) + "}}"
