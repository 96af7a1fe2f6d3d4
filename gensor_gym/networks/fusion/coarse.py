"""The plan of coarse-grain fusion: `fine`, and neighbours that go along the same rows run in one parallel loop.

After the coarse-grain fusion of oneDNN Graph Compiler (Li et al., arXiv 2301.01333): adjacent fused operators with the same
outermost parallel loop become one. What that saves is small: a wait for the slowest thread for each piece that goes on. What it
may cost is large: where threads share out rows, every task reads all constants, which threads that share out columns read once
between them. So a loop is made where its tasks have so many rows that multiplying hides this reading.
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
"""Shares of the seconds in which a task computes: reading its constants takes at most the first, since lines are asked for ahead
(`codegen/c/micro/ahead.py`). The second is what threads that wait for tasks may lose, and reading where that could be less."""
HELD = 1 / 2
"""Of a cache, at most, is what stays there."""
PARTS = 4
"""Tasks of each thread, if reading stays hidden: who was kept waiting leaves some to others."""


def fine_coarse(network: Network, machine: Hardware | None = None) -> Plan:
    """`fine`, and each piece goes on in the loop of the one before where `rows_together` has rows for them; for this host."""
    hw, pieces = machine or hardware.get("host"), list(fine(network).pieces)
    for number in range(1, len(pieces)):
        first = number - len(loop_before(pieces, number))
        joined = rows_together(network, pieces[first : number + 1], hw)
        if joined and not loop_fault(network, joined):
            pieces[first : number + 1] = joined
    return Plan(network, tuple(pieces))


def rows_together(network: Network, pieces: Sequence[Piece], hw: Hardware) -> list[Piece]:
    """The pieces, each but the first of which follows by the rows of a task; none where no loop of them pays.

    A task has a thread's share of the rows, if reading is hidden (`HIDDEN`): seconds for the pieces' constants, from the
    innermost cache that holds those of the network, against seconds for the arithmetic of the rows. It has less where that stays
    `SMALL`, so that threads find `PARTS` tasks each, and what lies between pieces stays in the second cache.
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
    reading = constants / _bandwidth(network, hw) / of_row  # rows whose arithmetic takes as long, of all threads at once
    rows = round_up(-(-count // hw.units), STEP)
    while (half := round_up(rows // 2, STEP)) < rows and _wants_fewer(rows, count, between, hw):
        if reading > SMALL * half or _idle(half, count, hw) > SMALL:
            break
        rows = half
    if reading > HIDDEN * rows or rows > count or _idle(rows, count, hw) > SMALL:
        return []
    return [pieces[0], *(dataclasses.replace(piece, follows=rows) for piece in pieces[1:])]


def _idle(rows: int, count: int, hw: Hardware) -> float:
    """What the thread that has most tasks of so many rows has more than an equal share, as a share of that."""
    tasks = -(-count // rows)
    return -(-tasks // hw.units) * hw.units * rows / count - 1


def _wants_fewer(rows: int, count: int, between: float, hw: Hardware) -> bool:
    """Whether threads have few tasks of so many rows, or the values of these rows, of so many bytes each, do not stay near."""
    return -(-count // rows) < PARTS * hw.units or rows * between > HELD * hw.level("l2").capacity


def _bandwidth(network: Network, hw: Hardware) -> float:
    """Bytes a second of all threads from where the network's constants lie from call to call."""
    size = sum(array.nbytes for array in network.constants.values())
    fits = (level for level in hw.memory[1:] if size <= HELD * level.capacity)
    return next(fits, hw.memory[-1]).bandwidth
