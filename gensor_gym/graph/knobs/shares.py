"""Knobs that divide a reduction among blocks of a GPU, threads of a block, or tasks of a CPU."""

from __future__ import annotations

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs.knob import MATRIX, REDUCE_SHARES, REGISTERS, SHARED, SPLIT, WARPS, Knob
from gensor_gym.graph.knobs.tensor_cores import EQUAL_SHARES
from gensor_gym.graph.structure import reduction_points
from gensor_gym.graph.tables.geometry import power_value, reduce_product, reduce_steps
from gensor_gym.graph.tables.layout import CONVOLUTION, PERSISTENT, REDUCE_THREADS, SPLIT_K, THREAD_SPLIT
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


def _has_points(op: Operator, hardware: Hardware, shares: int) -> bool:
    return shares <= reduction_points(op)


KNOBS = (
    Knob(
        place=SPLIT_K, name="split_k", kind="gpu", values=(1, 2, 4, 8, 16, 32, 64),
        doc="1 .. 64: blocks that share a reduction, added up by a second kernel",
        cost="workspace and a second kernel that adds it up",
        is_useful=_has_points, raising=SPLIT, structural=True,
    ),
    Knob(
        place=REDUCE_THREADS, name="reduce_threads", kind="gpu", values=(1, 2, 4, 8, 16, 32, 64, 128, 256),
        doc="1 .. 256: threads of a block that share a reduction",
        cost="threads, shared memory and barriers at the end",
        is_useful=_has_points, raising=REGISTERS | SHARED | REDUCE_SHARES | MATRIX | WARPS, cores=(0,),
    ),
    Knob(
        place=THREAD_SPLIT, name="thread_split", kind="cpu", values=(1, 2, 4, 8),
        doc="1 .. 8: tasks that share a reduction",
        cost="threads share the reduction: partial outputs in a workspace, added up",
        is_useful=_has_points, raising=SPLIT, structural=True,
    ),
)  # fmt: skip


@lean
def blocks_have_steps(row, ints):  # noqa: ANN001, ANN201
    """Whether `split_k` is 1, or every block that shares a reduction gets at least one step of it.

    Splits exclude `persistent` = 2, which gives blocks equal shares of all steps.
    """
    return row[SPLIT_K] == 0 or (row[PERSISTENT] < EQUAL_SHARES and power_value(row[SPLIT_K]) <= reduce_steps(row, 1, ints))


@lean
def threads_have_points(row, ints):  # noqa: ANN001, ANN201
    """Whether `reduce_threads` is 1, or a block tile has at least one register tile of the reduction for each such thread."""
    if row[REDUCE_THREADS] == 0:
        return True
    return power_value(row[REDUCE_THREADS]) <= reduce_product(row, 1, ints) // reduce_product(row, 0, ints)


@lean
def tasks_have_steps(row, ints):  # noqa: ANN001, ANN201
    """Whether `thread_split` is 1, or every task that shares a reduction gets at least one task tile of it.

    A shifted matrix product (`convolution` = 2) cannot be split.
    """
    if row[THREAD_SPLIT] == 0:
        return True
    return row[CONVOLUTION] != 2 and power_value(row[THREAD_SPLIT]) <= reduce_steps(row, 2, ints)
