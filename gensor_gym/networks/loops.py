"""Pieces (kernels of a plan) that run in one parallel loop over rows.

A task of the loop computes its rows of each piece in order, without waits between pieces. This follows the coarse-grain fusion of
oneDNN Graph Compiler (Li et al., arXiv 2301.01333), which merges the outermost parallel loops of adjacent kernels. No task may
read values that another task computes, so values computed in the loop are read only row by row. A piece can be part of a loop if
it is a product of two matrices, a row nest (maps and reductions of each row), or a product with a row nest after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gensor_gym.chains.chain import goes_row_by_row, shape_of
from gensor_gym.chains.panel import is_panel, panel_of
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.nest import Access, RowNest, row_nest
from gensor_gym.gir.parts import with_long_rows, with_rows_turned
from gensor_gym.networks.network import Network
from gensor_gym.networks.pieces import Piece
from gensor_gym.networks.steps import Step
from gensor_gym.operators.types import Operator

MOST_TOGETHER = 16
"""Largest number of kernels that share one loop: `GG_TOGETHER` of `network.c`."""


@dataclass(frozen=True)
class Rows:
    """Number of rows that a step (one kernel) computes, and for each of its inputs whether it is read row by row."""

    count: int
    read: tuple[bool, ...]
    """For each input of the step: whether a row of the result depends only on the same row of the input."""


def rows_of(step: Step) -> Rows:
    """Return how many rows a step computes and how it reads its inputs. ValueError if it does not compute rows in order."""
    computation = step.computation
    if isinstance(computation, Operator):
        return Rows(shape_of(computation).rows if len(computation.spatial) == 2 else 0, _of_product(computation))
    if is_panel(computation):
        return _of_panel(computation)
    nest = row_nest(computation)
    if with_long_rows(nest).together > 1:
        raise ValueError(f"{computation}: rows of {nest.columns} columns are computed together, expected longer rows in a loop")
    if with_rows_turned(nest) is not nest:
        raise ValueError(f"{computation}: rows are computed in another order than they are stored, expected that order in a loop")
    _check_written(nest)
    return Rows(nest.rows, tuple(_of_nest(nest, value.name) for value in computation.inputs))


def _of_product(op: Operator) -> tuple[bool, ...]:
    """Return for each operand of a product whether it is read row by row.

    The left matrix is, and so are operands of its epilogue that have the output's shape.
    """
    shape_of(op)
    if len(op.spatial) != 2:
        raise ValueError(f"{op} has a batch: expected rows of one matrix")
    stages = (stage.access for stage in op.epilogue if stage.access is not None)
    same = (one.coefficients == op.write.coefficients and one.tensor.shape == op.output.shape for one in stages)
    return True, False, *same


def _of_panel(graph: Dataflow) -> Rows:
    """Return the rows of a product with a row nest (maps and reductions of each row) after it.

    An input is read row by row if product and row nest both read it so.
    """
    panel = panel_of(graph)
    _check_written(panel.nest)
    of_product = _of_product(panel.product)
    found = []
    for value in graph.inputs:
        places = [of_product[place] for place, name in enumerate(panel.reads) if name == value.name]
        in_nest = [_of_nest(panel.nest, value.name)] if value.name in {one.name for one in panel.nest.graph.inputs} else []
        found.append(all([*places, *in_nest]))
    return Rows(panel.nest.rows, tuple(found))


def _check_written(nest: RowNest) -> None:
    for _, access in nest.stores:
        if not goes_row_by_row(nest, access):
            raise ValueError(f"{nest.graph.name}: {access.tensor} is not written row by row")


def _of_nest(nest: RowNest, tensor: str) -> bool:
    accesses = (cell.made for cell in nest.cells if isinstance(cell.made, Access))
    return all(goes_row_by_row(nest, access) for access in accesses if access.tensor == tensor and _is_read(access, tensor))


def _is_read(access: Access, tensor: str) -> bool:
    return tensor in (access.tensor, access.chosen.ids.tensor if access.chosen else None)


def loops(pieces: Sequence[Piece]) -> Iterator[list[int]]:
    """Group pieces by the loop in which they run. Yield the indices of the pieces of each loop."""
    found: list[int] = []
    for number, piece in enumerate(pieces):
        if found and not piece.follows:
            yield found
            found = []
        found.append(number)
    yield from [found] if found else []


def loop_fault(network: Network, pieces: Sequence[Piece]) -> str:
    """Return the reason why pieces cannot share their loops; empty if they can."""
    if pieces and pieces[0].follows:
        return f"{pieces[0].nodes[0]} follows nothing: expected a piece before it"
    for numbers in loops(pieces):
        if len(numbers) > 1 and (fault := _fault_of(network, [pieces[number] for number in numbers])):
            return fault
    return ""


def _fault_of(network: Network, together: Sequence[Piece]) -> str:
    if len(together) > MOST_TOGETHER:
        return f"{len(together)} pieces in the loop of {together[0].nodes[0]}, expected at most {MOST_TOGETHER}"
    made, count, rows = set[str](), 0, together[1].follows
    for piece in together:
        step, name = piece.step(network), piece.nodes[0]
        try:
            along = rows_of(step)
        except ValueError as error:
            return f"{name} in a loop with others: {error}"
        count = count or along.count
        if along.count != count or (piece.follows or rows) != rows or rows > count:
            return f"{name} goes along {along.count} rows by {piece.follows or rows}, expected {count} by {rows} or fewer"
        for read, by_row in zip(step.reads, along.read, strict=True):
            if not made.isdisjoint(network.made_by(read)) and not (by_row and read in made):
                return f"{name} reads of {read} what other tasks of its loop make"
        made.update(step.writes)
    return ""


def task_rows(pieces: Sequence[Piece]) -> list[int]:
    """Return the number of rows per task for each piece that shares a loop; 0 for a piece with a loop of its own."""
    found = []
    for numbers in loops(pieces):
        found += [pieces[numbers[1]].follows if len(numbers) > 1 else 0] * len(numbers)
    return found


def tasks_together(pieces: Sequence[Piece], kernels: Sequence[Kernel]) -> list[int]:
    """Return for each piece how many consecutive tasks of its kernel are one task of its loop; 1 for a loop of its own.

    ValueError for a kernel whose tasks do not add up to the rows of the loop's task.
    """
    found = []
    for piece, kernel, rows in zip(pieces, kernels, task_rows(pieces), strict=True):
        found.append(kernel.tasks_of(rows) if rows else 1)
        if not found[-1]:
            raise ValueError(
                f"the kernel of {piece.nodes[0]} has tasks of {kernel.task_rows} rows, expected {rows}, as its loop, or a part"
            )
    return found
