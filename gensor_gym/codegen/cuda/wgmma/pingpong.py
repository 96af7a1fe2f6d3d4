"""Ping-pong: two consumers of a block take turns at the tensor cores, each with tiles of its own, as in CUTLASS's schedule.

While one consumer stores its tile, the other one multiplies. Otherwise all consumers of a block share a tile, and the tensor
cores are idle while they store it. Blocks stay and take several tiles: the first consumer takes the first, third, fifth, ... tile
of its block, the second consumer takes the others. The producer fills the ring of stages for all tiles in order.

Each consumer has a barrier, its turn. A consumer waits for its turn before the steps of a tile. It gives the turn to the other
consumer when it has issued its last multiply-adds, before they are done. So a consumer starts at a step only after the other one
has waited for all steps before. That is needed, because phases of a barrier that are two rounds of the ring apart have the same
parity.

A consumer needs registers for a whole tile. So a block's tile is that of the schedule if its sums fit, else a part of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

from gensor_gym.codegen.cuda.text import Writer
from gensor_gym.codegen.cuda.wgmma.plan import BARRIER_BYTES, WARPGROUP, WgmmaPlan
from gensor_gym.codegen.cuda.wgmma.ring import with_deepest_ring
from gensor_gym.codegen.program import Program
from gensor_gym.graph.matrices.choices import WGMMA_ROWS, column_step
from gensor_gym.graph.structure import matrix_axes

MOST_SUMS = 192
"""Limit on a thread's sums: the other 40 of its registers have addresses and counters."""
MOST_COLUMNS = 256
"""Limit on the columns of a wgmma."""


def alternating(program: Program, plan_of: Callable[[Program], WgmmaPlan | None]) -> WgmmaPlan | None:
    """Return the plan of a program with tensor_core=2 whose consumers take turns. `plan_of` makes such plans, or None.

    None if there is none: with a split reduction, or with so few tiles that all of them run at the same time. The ring has as
    many stages as fit while as many blocks run at a time as with the program's number of stages.
    """
    if program.knob("split_k") > 1:
        return None
    plans = (plan_of(each.with_knobs(stages=1)) for each in _of_one_consumer(program))
    rings = (with_deepest_ring(plan, program.knob("stages")) for plan in plans if plan is not None)
    return next((plan for plan in rings if plan.persistent), None)


def _of_one_consumer(program: Program) -> list[Program]:
    """Return programs whose block tile one consumer computes, those that copy the least for a multiply-add first.

    Along each axis it is the program's block tile or the tile of one of the program's consumers. Along rows, and along columns
    of one axis, it may be half of the block tile.
    """
    op, (inner, outer) = program.operator, program.tiles
    roles = matrix_axes(op)
    assert roles is not None, "checked where a product's schedule takes tensor cores"
    wide, sizes, found = [a for a in op.spatial if outer[a] > 1], list[dict[int, None]](), dict[float, Program]()
    for a in wide:
        step = WGMMA_ROWS if a == roles.m else column_step(op)
        halved = outer[a] % (2 * step) == 0 and (a == roles.m or {*wide} <= {a, roles.m})
        sizes.append(dict.fromkeys((outer[a], *((outer[a] // 2,) if halved else ()), inner[a])))
    for chosen in product(*sizes):
        tile = dict(zip(wide, chosen, strict=True))
        rows, columns = max(tile.get(roles.m, 1), WGMMA_ROWS), math.prod(size for a, size in tile.items() if a != roles.m)
        if columns <= MOST_COLUMNS and rows * columns <= MOST_SUMS * WARPGROUP:
            both = (tuple(tile.get(a, n) for a, n in enumerate(level)) for level in program.tiles)
            found.setdefault(1 / rows + 1 / columns, replace(program, tiles=tuple(both)))
    return [found[copied] for copied in sorted(found)]


def write_turn_barriers(out: Writer, warps: int) -> None:
    """Write the initialisation of the barriers of turns. The `warps` of a consumer give the turn away, each by itself."""
    out.line(f"barrier_init(turn, {warps});")
    out.line(f"barrier_init(turn + {BARRIER_BYTES}, {warps});")


def write_own_ring(out: Writer) -> None:
    """Write the declarations of a consumer's place in the ring: the second consumer begins behind the first one's tile."""
    out.line("const int own = warpgroup - 1, other = 1 - own;")
    out.line("int stage = own * (STEPS % STAGES);")
    out.line("unsigned parity = own * (STEPS / STAGES % 2);")
    out.line("unsigned turn_parity = other;  // the first turn of the first consumer counts as given")


@contextmanager
def over_own_tiles(out: Writer, plan: WgmmaPlan) -> Iterator[str]:
    """Write a loop over a consumer's tiles, every second one of its block, around the `with` block; yield the number's C text."""
    share = " / CLUSTER" if plan.cluster > 1 else ""
    with out.block(f"for (int work = (blockIdx.x + own * gridDim.x){share}; work < WORK; work += 2 * gridDim.x{share})"):
        yield "work"


def write_turn(out: Writer) -> None:
    """Write the wait for a consumer's turn."""
    out.line(f"barrier_wait(turn + own * {BARRIER_BYTES}, turn_parity);")
    out.line("turn_parity ^= 1;")


def write_hand_over(out: Writer) -> None:
    """Write the end of a consumer's turn, after it has issued the last products of a tile."""
    out.line(f"if (lane == 0) barrier_arrive(turn + other * {BARRIER_BYTES});")


def write_skip(out: Writer) -> None:
    """Write the way in the ring over the steps of the other consumer's next tile."""
    out.line("parity ^= STEPS / STAGES % 2;")
    with out.block("if ((stage += STEPS % STAGES) >= STAGES)"):
        out.line("stage -= STAGES;")
        out.line("parity ^= 1;")
