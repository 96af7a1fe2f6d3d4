"""The plan of coarse-grain fusion: the plan `fine`, with adjacent pieces over the same rows in one parallel loop.

It follows the coarse-grain fusion of oneDNN Graph Compiler (Li et al., arXiv 2301.01333): adjacent fused operators with the same
outermost parallel loop get one loop. The saving is small: a wait for the slowest thread after each piece. The cost may be large:
if threads divide the rows among them, every task reads all constants, while threads that divide the columns read them once
together. So a loop is made only if its tasks have enough rows to hide this reading behind arithmetic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gensor_gym import hardware
from gensor_gym.codegen.c.text import round_up
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.fusion.fine import fine
from gensor_gym.networks.fusion.mergers import loop_before
from gensor_gym.networks.loops import loop_fault, rows_of
from gensor_gym.networks.network import Network
from gensor_gym.networks.pieces import Piece
from gensor_gym.networks.plan import Plan
from gensor_gym.networks.tasks import STEP

HIDDEN, SMALL = 1 / 4, 1 / 16
"""Fractions of a task's compute time.

Reading a task's constants may take up to HIDDEN, because lines are prefetched (`codegen/c/micro/ahead.py`). SMALL bounds the loss
to threads without tasks, and the reading if a task gets fewer rows than a thread's share.
"""
HELD = 1 / 2
"""Largest fraction of a cache for data that should stay in it."""
PARTS = 4
"""Wanted number of tasks per thread, so that other threads can take tasks of a delayed thread."""


def fine_coarse(network: Network, machine: Hardware | None = None) -> Plan:
    """Plan `fine`, with each piece in the loop of the previous piece if `rows_together` finds rows; for this host by default."""
    hw = machine or hardware.get("host")
    pieces = list(fine(network, hw).pieces)
    for number in range(1, len(pieces)):
        first = number - len(loop_before(pieces, number))
        joined = rows_together(network, pieces[first : number + 1], hw)
        if joined and not loop_fault(network, joined):
            pieces[first : number + 1] = joined
    return Plan(network, tuple(pieces))


def rows_together(network: Network, pieces: Sequence[Piece], hw: Hardware) -> list[Piece]:
    """The pieces in one loop; each piece after the first computes the rows of a task. Empty if no loop pays off.

    A task has a thread's share of the rows. Reading the pieces' constants, from the innermost cache that fits all constants of
    the network, must take at most `HIDDEN` of the time of the task's arithmetic. As long as it takes less than `SMALL`, tasks get
    fewer rows, until each thread has `PARTS` tasks and values between pieces stay in the second-level cache.
    """
    try:
        steps = [piece.step(network) for piece in pieces]
        count = min(rows_of(step).count for step in steps)
    except ValueError:
        return []
    values = network.graph.values
    read = {name for step in steps for name in (*step.reads, *step.writes)}
    constants = sum(values[name].nbytes for name in read if name in network.constants)
    between = sum(values[name].nbytes for name in read if name not in network.constants) / max(1, count)
    of_row = max(1, sum(step.computation.flops for step in steps)) / count / hw.peak_of("float32")
    reading = constants / _bandwidth(network, hw) / of_row  # number of rows whose arithmetic takes as long as reading
    rows = round_up(-(-count // hw.units), STEP)
    while (half := round_up(rows // 2, STEP)) < rows and _wants_fewer(rows, count, between, hw):
        if reading > SMALL * half or _idle(half, count, hw) > SMALL:
            break
        rows = half
    if reading > HIDDEN * rows or rows > count or _idle(rows, count, hw) > SMALL:
        return []
    return [pieces[0], *(dataclasses.replace(piece, follows=rows) for piece in pieces[1:])]


def _idle(rows: int, count: int, hw: Hardware) -> float:
    """Excess work of the busiest thread over an equal share, as a fraction of that share."""
    tasks = -(-count // rows)
    return -(-tasks // hw.units) * hw.units * rows / count - 1


def _wants_fewer(rows: int, count: int, between: float, hw: Hardware) -> bool:
    """Whether threads have too few tasks, or the values of a task's rows (`between` bytes each) do not stay in cache."""
    return -(-count // rows) < PARTS * hw.units or rows * between > HELD * hw.level("l2").capacity


def _bandwidth(network: Network, hw: Hardware) -> float:
    """Bytes per second of all threads from the memory level where the network's constants stay between calls."""
    size = sum(array.nbytes for array in network.constants.values())
    fits = (level for level in hw.memory[1:] if size <= HELD * level.capacity)
    return next(fits, hw.memory[-1]).bandwidth
