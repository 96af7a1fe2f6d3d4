"""Operations on whole rows of a product's output, such as a layer norm.

They run at the end of tasks that compute whole rows, else in a separate loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.codegen.c.operand import count, task_start
from gensor_gym.codegen.c.plan import LoopPlan
from gensor_gym.codegen.c.shared import shared_reads
from gensor_gym.codegen.c.text import Lines, ceil_div, linear, round_up
from gensor_gym.operators.computation import Computation

_PIECES = 4
"""Number of tasks per thread of the separate loop over finished rows."""


@dataclass(frozen=True)
class WholeRows:
    """Operations on whole rows of a product's output, such as a layer norm, as C text.

    The C function `rows_done(call, thread, begin, end)` processes finished rows. Other fields describe the members of `struct
    call` that it uses.
    """

    computation: Computation
    """The whole computation: the product and the operations on its rows."""
    order: tuple[int, ...]
    """For every operand of the product, its index among the computation's inputs."""
    output: str
    """C text of the product's output; empty if the output is in the workspace, in `value_bytes` bytes."""
    fields: tuple[str, ...]
    """C declarations of additional members of `struct call`."""
    given: tuple[str, ...]
    """C initialisers of the additional members of `struct call`."""
    value_names: tuple[str, ...]
    """Names of members of `struct call` that point to the product's output."""
    functions: tuple[str, ...]
    value_bytes: int
    thread_bytes: int
    step: int
    """Number of rows that `rows_done` processes together."""


def at_end(plan: LoopPlan) -> bool:
    """Return whether the tasks of the product can also process the rows that they compute.

    Tasks must compute all columns of their rows, and there must be at least as many tasks as threads.
    """
    *rows, columns = plan.op.spatial
    tasks = 1
    for a in rows:
        tasks *= plan.grid[a]
    return plan.splits == 1 and plan.grid[columns] == 1 and tasks >= plan.threads


def task_blocks(plan: LoopPlan, ends_with_rows: bool, prepacked: bool) -> tuple[int, int]:
    """Return (`Kernel.task_rows`, `Kernel.tasks_of_block`) of a product with two spatial axes; (0, 1) for any other kernel.

    They are the rows of a task, and the number of tasks that share these rows.
    """
    if len(plan.op.spatial) != 2 or plan.shift is not None or plan.splits > 1 or (ends_with_rows and not at_end(plan)):
        return 0, 1
    rows, columns = plan.op.spatial
    copies = len(shared_reads(plan)) - prepacked  # copies need a separate parallel loop
    return (0, 1) if copies else (plan.tiles[2][rows], plan.grid[columns])


def task_lines(lines: Lines, plan: LoopPlan) -> None:
    """Write the calls of `rows_done` at the end of a task, one for each run of adjacent rows."""
    *outer, inner = plan.op.spatial[:-1]
    extents = plan.op.extents
    terms, below = [(1, task_start(plan, inner))], extents[inner]
    heads: list[str] = []
    for a in reversed(outer):
        name = f"{plan.axes[a]}_row"
        heads.insert(0, f"for (long {name} = 0; {name} < {count(plan, a).replace('t->', 't.')}; {name}++)")
        terms += [(below, task_start(plan, a)), (below, name)]
        below *= extents[a]
    with lines.blocks(heads):
        lines.add(f"const long row = {linear(terms)};")
        lines.add(f"rows_done(call, thread, row, row + {count(plan, inner).replace('t->', 't.')});")


def _rows(plan: LoopPlan) -> int:
    return plan.op.output.size // plan.op.output.shape[-1]


def _piece(plan: LoopPlan, rows: WholeRows) -> int:
    return round_up(ceil_div(_rows(plan), _PIECES * plan.threads), rows.step)


def loop_function(plan: LoopPlan, rows: WholeRows) -> list[str]:
    """Return the C function with which a separate loop processes the product's finished rows, in a list.

    The list is empty if tasks of the product process their rows themselves.
    """
    if at_end(plan):
        return []
    lines, piece = Lines(), _piece(plan, rows)
    with lines.block("static void some_rows(void *context, long index, int thread)"):
        lines.add(f"rows_done(context, thread, index * {piece}, least((index + 1) * {piece}, {_rows(plan)}));")
    return [str(lines)]


def loop_call(plan: LoopPlan, rows: WholeRows) -> list[str]:
    """Return C statements that run the separate loop over the product's finished rows.

    The list is empty if tasks of the product process their rows themselves.
    """
    return [] if at_end(plan) else [f"team.parallel(&team, some_rows, &call, {ceil_div(_rows(plan), _piece(plan, rows))});"]
