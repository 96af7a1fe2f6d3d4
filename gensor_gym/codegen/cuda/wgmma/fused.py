"""Fusion of the axes of a product's columns into one axis, for wgmma.

A convolution with a window of one element is, for every image n, out[n][k][pixel] = sum over c of W[k][c] * X[n][c][pixel].
Pixels of an image are contiguous in memory for every width, so a tile of them need not be whole rows. For later code it is a
batched product whose A is the same for all n. Nothing is copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gensor_gym.codegen.program import Program
from gensor_gym.graph.matrices.lying import wgmma_columns
from gensor_gym.operators.types import Access, Axis, Operator

FUSED = "pixel"
"""Name of the fused axis."""


def with_fused_columns(program: Program) -> Program:
    """Return the program with its column axes fused into one, tiles included; unchanged if it has only one column axis.

    The operator's loops and accesses change, but its tensors do not: each access reaches the same elements (`lies_as_product` in
    `graph/matrices/lying.py`). Reduce axes of one element are dropped, except the first.
    """
    op = program.operator
    columns = wgmma_columns(op)
    if len(columns) == 1:
        return program
    before = [a for a in op.spatial if a < columns[0]]
    groups: list[tuple[int, ...]] = [*((a,) for a in before), columns, op.reduce[:1]]
    axes = tuple(
        Axis(FUSED, math.prod(op.extents[a] for a in group), "spatial") if group == columns else op.axes[group[0]]
        for group in groups
    )
    stages = tuple(replace(s, access=s.access and _fused(op, s.access, groups, columns)) for s in op.epilogue)
    fused = op.renamed(
        axes=axes,
        reads=tuple(_fused(op, read, groups, columns) for read in op.reads),
        write=_fused(op, op.write, groups, columns),
        channel_axis=before.index(op.channel_axis),
        epilogue=stages,
    )
    tiles = tuple(tuple(math.prod(tile[a] for a in group) for group in groups) for tile in program.tiles)
    return replace(program, operator=fused, tiles=tiles, vthread=(1,) * len(groups))


def _fused(op: Operator, access: Access, groups: Sequence[tuple[int, ...]], columns: tuple[int, ...]) -> Access:
    """Return an access in terms of the fused axes `groups`.

    Dimensions along `columns` become one, those without an axis are dropped.
    """
    kept = {axis for group in groups for axis in group}
    view: list[int] = []
    coefficients: list[tuple[int, ...]] = []
    run = math.prod(op.extents[a] for a in columns)
    for size, row in zip(access.view, access.coefficients, strict=True):
        movers = {a for a, coefficient in enumerate(row) if coefficient and a in kept}
        if movers & set(columns):
            if not coefficients or coefficients[-1][groups.index(columns)] == 0:
                view.append(run)
                coefficients.append(tuple(int(group == columns) for group in groups))
        elif movers:
            view.append(size)
            coefficients.append(tuple(row[group[0]] for group in groups))
    return replace(access, view=tuple(view), coefficients=tuple(coefficients), offset=(0,) * len(view))
