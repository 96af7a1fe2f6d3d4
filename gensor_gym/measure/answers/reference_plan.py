"""Tables from which `reference.cu` computes an operator: parts of flat indices, to be added.

The flat index of a load is affine in the axes, so it is the sum of one part for each group of axes. Tables of these parts replace
divisions in the inner loop. They keep the operator's shape out of the CUDA text, so that one cubin serves all operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gensor_gym.measure.answers.expectation import BoundTerms, bound_terms
from gensor_gym.operators.traits import is_product
from gensor_gym.operators.types import Access, Operator

PLACE = np.dtype([("flat", np.int64), ("u", np.int32), ("v", np.int32)])
"""The struct `Place` of `reference.cu`: a flat index, and indices along up to two padded dimensions."""
CODES = {"float32": 0, "float16": 1, "bfloat16": 2, "int8": 3, "int32": 4, "float8_e4m3fn": 5}
"""Tensor's data type -> its number in `reference.cu`."""
FUNCTIONS = ("relu", "gelu", "sigmoid", "tanh", "exp", "copy", "add", "mul", "relu6")
"""Scalar functions of `reference.cu`. A function's number is its position."""
KNOWN = ("multiply_add", "sum", "max", "map")
"""Operator bodies that `reference.cu` supports. The host computes references of other bodies."""
STAGES = {"bias": "add", "residual": "add", "scale": "mul", "relu": "relu", "gelu": "gelu", "relu6": "relu6"}
"""Stage of an epilogue -> its function."""
_FREE = 1 << 30
"""Limit for an index that is never out of bounds."""


@dataclass(frozen=True)
class StagePlan:
    """A stage of the epilogue: its function's number, and its operand. Output i reads element (i // inner) % size of it."""

    function: int
    has_operand: bool
    inner: int = 1
    size: int = 1


@dataclass(frozen=True)
class ReadPlan:
    """A read: for each group of axes, PLACE [points] with parts of the flat index. `limits`: sizes of the padded dimensions."""

    places: dict[str, np.ndarray]
    limits: tuple[int, int]


@dataclass(frozen=True)
class ReferencePlan:
    """An operator for `reference.cu`. `body` is the operator's; a map has no tables.

    Groups of axes: `rows`, `columns` and `batch` are spatial, `deep` is reduced. `outputs` has the parts of the output's flat
    index for each spatial group, int64 [count]. In a product, only the first read uses the axes of `rows`, and only the second
    read those of `columns`.
    """

    body: str
    read_count: int
    reads: tuple[ReadPlan, ...]
    outputs: dict[str, np.ndarray]
    depth: int
    divisor: float
    function: int
    stages: tuple[StagePlan, ...]
    terms: BoundTerms
    spread: bool

    def count(self, group: str) -> int:
        """Number of points of a group of spatial axes."""
        return len(self.outputs[group])


def plan_of(op: Operator) -> ReferencePlan:
    """Tables from which `reference.cu` computes an operator; ValueError names the unsupported part."""
    groups = _groups(op)
    reads: tuple[ReadPlan, ...] = ()
    outputs: dict[str, np.ndarray] = {}
    if op.body == "map":
        for read in op.reads:
            if read.axis_strides() != op.write.axis_strides() or any(read.offset):
                raise ValueError(f"{op}: read {read.tensor.name} of a map is not indexed as the output")
    else:
        grids = {name: _grid(op, axes) for name, axes in groups.items()}
        reads = tuple(_read_plan(op, read, grids) for read in op.reads)
        outputs = {name: _parts(op.write, grid)["flat"].copy() for name, grid in grids.items() if name != "deep"}
    terms = bound_terms(op)
    return ReferencePlan(
        body=op.body,
        read_count=len(op.reads),
        reads=reads,
        outputs=outputs,
        depth=int(np.prod([op.extents[a] for a in op.reduce], dtype=np.int64)),
        divisor=float(op.divisor),
        function=FUNCTIONS.index(op.function) if op.body == "map" else 0,
        stages=tuple(_stage_plan(op, name, access) for name, access in ((s.name, s.access) for s in op.epilogue)),
        terms=terms,
        spread=terms.rounded > 0.0,
    )


def _groups(op: Operator) -> dict[str, tuple[int, ...]]:
    """Group -> axes. With one read the spatial axes are split into two groups, so that both tables stay short."""
    groups = {"deep": op.reduce, "batch": (), "rows": (), "columns": ()}
    if is_product(op):
        if op.divisor != 1 or op.pad_value != 0.0:
            raise ValueError(f"{op}: a sum of products with divisor {op.divisor} and pad value {op.pad_value}")
        first, second = ({a for a in op.spatial if any(row[a] for row in read.coefficients)} for read in op.reads)
        groups["batch"] = tuple(a for a in op.spatial if a in first and a in second)
        groups["rows"] = tuple(a for a in op.spatial if a in first and a not in second)
        groups["columns"] = tuple(a for a in op.spatial if a not in first)
        return groups
    sizes = [op.extents[a] for a in op.spatial]
    cuts = range(len(sizes) + 1)
    cut = min(cuts, key=lambda c: int(np.prod(sizes[:c], dtype=np.int64)) + int(np.prod(sizes[c:], dtype=np.int64)))
    return {**groups, "rows": op.spatial[:cut], "columns": op.spatial[cut:]}


def _grid(op: Operator, axes: Sequence[int]) -> np.ndarray:
    """All points of some axes in order, int64 [points, all axes]. The other axes are 0."""
    inside = np.indices([op.extents[a] for a in axes]).reshape(len(axes), -1).T if axes else np.zeros((1, 0), np.int64)
    grid = np.zeros((len(inside), len(op.extents)), dtype=np.int64)
    grid[:, list(axes)] = inside
    return grid


def _parts(access: Access, grid: np.ndarray, padded: Sequence[int] = ()) -> np.ndarray:
    """Part of the flat index for each point of a grid, without the offset: PLACE [points]."""
    parts = np.zeros(len(grid), dtype=PLACE)
    parts["flat"] = grid @ np.array(access.axis_strides(), dtype=np.int64)
    for name, dimension in zip(("u", "v"), padded, strict=False):
        parts[name] = grid @ np.array(access.coefficients[dimension], dtype=np.int64)
    return parts


def _read_plan(op: Operator, access: Access, grids: dict[str, np.ndarray]) -> ReadPlan:
    """Tables of a read. Its offset is added to the table of `batch` for a product, otherwise to that of `rows`."""
    spans = [access.span(d, op.extents) for d in range(len(access.view))]
    padded = [d for d, (low, high) in enumerate(spans) if low < 0 or high >= access.view[d]]
    if len(padded) > 2:
        raise ValueError(f"{op}: read {access.tensor.name} is padded along {len(padded)} dimensions, expected at most 2")
    places = {name: _parts(access, grid, padded) for name, grid in grids.items()}
    home = places["batch" if is_product(op) else "rows"]
    home["flat"] += int(np.dot(access.strides(), access.offset))
    for name, dimension in zip(("u", "v"), padded, strict=False):
        home[name] += access.offset[dimension]
    limits = [access.view[d] for d in padded] + [_FREE] * (2 - len(padded))
    return ReadPlan(places, (limits[0], limits[1]))


def _stage_plan(op: Operator, name: str, access: Access | None) -> StagePlan:
    """Plan of a stage whose operand is indexed by one dimension of the output, or like the output."""
    function = FUNCTIONS.index(STAGES[name])
    if access is None:
        return StagePlan(function, False)
    write = op.write
    if access.coefficients == write.coefficients and access.offset == write.offset and access.view == write.view:
        return StagePlan(function, True, 1, op.output.size)
    for dimension, row in enumerate(write.coefficients):
        if access.coefficients == (row,) and access.view == (write.view[dimension],):
            return StagePlan(function, True, write.strides()[dimension], write.view[dimension])
    raise ValueError(f"{op}: operand {access.tensor.name} of stage {name} is indexed neither by a channel nor as the output")
