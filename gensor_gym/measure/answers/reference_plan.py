"""Tables from which `reference.cu` computes an operator: the amount that each index of an axis adds to a tensor's flat index.

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
"""NumPy form of the struct `Place` of `reference.cu`: a flat index, and indices along up to two padded dimensions."""
CODES = {"float32": 0, "float16": 1, "bfloat16": 2, "int8": 3, "int32": 4, "float8_e4m3fn": 5}
"""A tensor's data type -> the number of this type in `reference.cu`."""
FUNCTIONS = ("relu", "gelu", "sigmoid", "tanh", "exp", "copy", "add", "mul", "relu6")
"""Names of the scalar functions that `reference.cu` supports. A function's number there is its position here."""
KNOWN = ("multiply_add", "sum", "max", "map")
"""Bodies of operators, such as `multiply_add`, that `reference.cu` supports. The host computes references of other bodies."""
STAGES = {"bias": "add", "residual": "add", "scale": "mul", "relu": "relu", "gelu": "gelu", "relu6": "relu6"}
"""Name of an epilogue's stage -> the scalar function that computes it."""
_FREE = 1 << 30
"""Size that is used for a dimension whose index is never out of bounds."""


@dataclass(frozen=True)
class StagePlan:
    """A stage of the epilogue: the number of its function, and the shape of its operand if it has one.

    For output element i it reads element (i // inner) % size of the operand.
    """

    function: int
    has_operand: bool
    inner: int = 1
    size: int = 1


@dataclass(frozen=True)
class ReadPlan:
    """Tables for one input: for each group of axes, the amount that each point of these axes adds to the input's flat index.

    `places` maps a group to its table, of type `PLACE` [points]. `limits` are the sizes of the input's padded dimensions.
    """

    places: dict[str, np.ndarray]
    limits: tuple[int, int]


@dataclass(frozen=True)
class ReferencePlan:
    """An operator as tables for `reference.cu`. `body` is the operator's body; a map has no tables.

    The axes are in four groups: `rows`, `columns` and `batch` are spatial, `deep` is reduced. `outputs` maps each spatial group
    to the amounts that its points add to the output's flat index, int64 [count]. In a product, only the first input uses the axes
    of `rows`, and only the second input those of `columns`.
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
        """Return the number of points of a group of spatial axes: the product of their extents."""
        return len(self.outputs[group])


def plan_of(op: Operator) -> ReferencePlan:
    """Return the tables from which `reference.cu` computes an operator. ValueError names a part that it does not support."""
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
    """Split an operator's axes into groups. Return the axes of `deep`, `batch`, `rows` and `columns` by name.

    With one input, the spatial axes are split into `rows` and `columns` so that both tables stay short.
    """
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
    """Return all points of some axes in order, int64 [points, all axes]: their index along each axis, 0 along the other axes."""
    inside = np.indices([op.extents[a] for a in axes]).reshape(len(axes), -1).T if axes else np.zeros((1, 0), np.int64)
    grid = np.zeros((len(inside), len(op.extents)), dtype=np.int64)
    grid[:, list(axes)] = inside
    return grid


def _parts(access: Access, grid: np.ndarray, padded: Sequence[int] = ()) -> np.ndarray:
    """Return the amounts that each point of `grid` adds to the flat index of an access, and to the indices along `padded`.

    The result is [points] of type `PLACE`. The access's constant offset is not included.
    """
    parts = np.zeros(len(grid), dtype=PLACE)
    parts["flat"] = grid @ np.array(access.axis_strides(), dtype=np.int64)
    for name, dimension in zip(("u", "v"), padded, strict=False):
        parts[name] = grid @ np.array(access.coefficients[dimension], dtype=np.int64)
    return parts


def _read_plan(op: Operator, access: Access, grids: dict[str, np.ndarray]) -> ReadPlan:
    """Return the tables of one input.

    The access's offset is added once: to the table of `batch` for a product, else of `rows`.
    """
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
    """Return the plan of an epilogue's stage.

    ValueError unless one output dimension, or the whole output, indexes its operand.
    """
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
