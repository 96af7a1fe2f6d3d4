"""A product whose columns run over several axes, as wgmma takes it: those axes become one.

A convolution with a window of one element is, for every image n, out[n][k][pixel] = sum over c of W[k][c] * X[n][c][pixel].
Pixels of an image follow each other in memory, whatever its width, so a tile of them need not be whole rows. To the later code it
is a batched product whose A is the same for all n; no copy is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gensor_gym.codegen.program import Program
from gensor_gym.graph.matrices.lying import wgmma_columns
from gensor_gym.operators.types import Access, Axis, Operator

FUSED = "pixel"
"""Name of the axis that several became."""


def with_fused_columns(program: Program) -> Program:
    """The program with one axis for its columns, as long as they together; tiles likewise. The same where they are one already.

    Of the operator (`structure.lies_as_product`) only loops and accesses change, not tensors: each access reaches the same
    elements. Reduce axes of one element other than the first are left out.
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
    """An access by the new axes: dimensions that columns move become one, those that nothing moves any more go."""
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
