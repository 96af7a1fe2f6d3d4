"""Parts of an operator as frozen plain data: loop axes, affine accesses to tensors, a body and an epilogue."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from gensor_gym.operators.bodies import BODIES, Reduction

AxisKind = Literal["spatial", "reduce"]

ITEM_BYTES = {
    "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "int32": 4, "int64": 8, "bool": 1, "float8_e4m3fn": 1,
}  # fmt: skip
"""Bytes of an element, by data type of the tensor."""
ARRAY_DTYPE = {
    "float32": "float32", "float16": "float16", "bfloat16": "uint16", "int8": "int8", "int32": "int32", "int64": "int64",
    "bool": "bool", "float8_e4m3fn": "uint8",
}  # fmt: skip
"""NumPy dtype of a tensor's arrays, by data type of the tensor. Arrays of bfloat16 and float8_e4m3fn contain bits."""

INPUT = {
    "float32": "float32", "float16": "float16", "bfloat16": "bfloat16", "int8": "int8", "tf32": "float32", "tf32x3": "float32",
    "float8_e4m3fn": "float8_e4m3fn",
}  # fmt: skip
"""Data type of the tensors that an operator reads, by data type of the operator. tf32 rounds elements to 10 bits of mantissa
before it multiplies. tf32x3 multiplies each element as a sum of two such numbers, which is as exact as float32."""
ACCUMULATOR = {dtype: "int32" if dtype == "int8" else "float32" for dtype in INPUT}
"""Data type of an operator's accumulators, by data type of the operator."""
OUTPUT = INPUT | {"int8": "int32", "float8_e4m3fn": "bfloat16"}
"""Data type of the tensor that an operator writes, and of its epilogue's operands, by data type of the operator. Sums of products
of 8-bit floats do not fit in 8-bit floats. Such layers write bfloat16, which has the range of the accumulators (float16 does not:
448 * 448 is beyond it)."""
FROZEN = "frozen "
"""Prefix of the text of an operator with constant weights."""
PRODUCT_TYPES = ("tf32", "tf32x3", "float8_e4m3fn")
"""Data types for operators with products only. tf32 and tf32x3 define how products round; float8_e4m3fn is a type of operands."""


@dataclass(frozen=True)
class Axis:
    """One loop of an operator. Spatial axes index the output; reduce axes do not."""

    name: str
    extent: int
    kind: AxisKind


@dataclass(frozen=True)
class Tensor:
    """A named row-major array: an input or output of a kernel."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    pitch: int = field(default=0, repr=False, kw_only=True)
    """Distance in memory, in elements, of neighbouring rows (along all dimensions but the last); 0 if rows follow one another.

    Such rows are parts of longer ones. Digests are made of `repr`, which leaves it out, because it is among the arguments.
    """

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def memory(self) -> tuple[int, ...]:
        """Shape of the whole array in memory, which begins with the tensor's first row: rows have `pitch` elements."""
        return (*self.shape[:-1], self.pitch) if self.pitch else self.shape

    @property
    def room(self) -> int:
        """Number of elements of the whole array in memory."""
        return math.prod(self.memory)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.size * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Access:
    """The element of a tensor that each point of the loops reads or writes, as an affine index for every dimension.

    The index is `index[d] = sum_a coefficients[d][a] * axis[a] + offset[d]`. `view` is the shape that the index addresses. It has
    as many elements as `tensor.shape` and equals it unless dimensions were collapsed (`elementwise`). Coefficients are never
    negative. An index outside the view reads the operator's pad value.
    """

    tensor: Tensor
    view: tuple[int, ...]  # [D]
    coefficients: tuple[tuple[int, ...], ...]  # [D, A]
    offset: tuple[int, ...]  # [D]

    def span(self, dimension: int, extents: tuple[int, ...]) -> tuple[int, int]:
        """Return the smallest and the largest index along a dimension, if axis `a` runs over 0..extents[a]-1."""
        reach = sum(c * (n - 1) for c, n in zip(self.coefficients[dimension], extents, strict=True))
        return self.offset[dimension], self.offset[dimension] + reach

    def is_padded(self, extents: tuple[int, ...]) -> bool:
        """Whether some point of the loops has an index outside the view, and so reads padding."""
        spans = [self.span(d, extents) for d in range(len(self.view))]
        return any(low < 0 or high >= size for (low, high), size in zip(spans, self.view, strict=True))

    def strides(self) -> tuple[int, ...]:
        """Return the distance in memory of neighbouring elements along each dimension of the view, in elements."""
        row = self.tensor.pitch or self.view[-1] if self.view else 1
        inner = (*self.view[:-1], row)
        return tuple(math.prod(inner[d + 1 :]) for d in range(len(inner)))

    def dense(self) -> Access:
        """Return the access to a tensor without gaps between its rows."""
        return replace(self, tensor=replace(self.tensor, pitch=0)) if self.tensor.pitch else self

    def axis_strides(self) -> tuple[int, ...]:
        """Return the distance in memory, in elements, between the accesses of neighbouring points along each axis."""
        strides = self.strides()
        axes = range(len(self.coefficients[0]))
        return tuple(sum(strides[d] * self.coefficients[d][a] for d in range(len(strides))) for a in axes)


@dataclass(frozen=True)
class Stage:
    """One elementwise function in an operator's epilogue, such as `bias`, and the access to its operand, if it has one."""

    name: str
    access: Access | None = None


@dataclass(frozen=True)
class Loops:
    """Loop nest of an operator: output[spatial axes] = epilogue(reduction, over the reduce axes, of a term of the elements read).

    The body, one of `operators.bodies`, names term and reduction: `multiply_add` (sum of products of elements of two tensors),
    `sum`, `max` (of one tensor) or `map` (no reduce axis; `function` of the elements). A sum is divided by `divisor` before the
    epilogue: in generated text by `codegen/c/micro/finish.py` and `codegen/cuda/simt/store.py`, in reference results by
    `operators/reference.py`, and by `sampled.py` and `reference_plan.py` of `measure/answers`. An access outside a tensor reads
    `pad_value`.
    """

    name: str
    arguments: tuple[tuple[str, object], ...]
    axes: tuple[Axis, ...]
    body: str
    reads: tuple[Access, ...]
    write: Access
    dtype: str = "float32"
    function: str = ""
    divisor: int = 1
    pad_value: float = 0.0
    channel_axis: int = 0
    """Index of the axis along which a per-channel operand of the epilogue (bias, scale) has its elements."""
    epilogue: tuple[Stage, ...] = ()
    frozen: bool = False
    """Whether the weights (`traits.weights`) are equal at every call, so that they are packed once for all calls."""
    winograd: int = field(default=0, repr=False)
    """Rows and columns of output tiles of Winograd's algorithm (`operators.kinds.winograd`); 0 for plain sums.

    Digests are made of `repr`, which leaves it out, because it is among the arguments.
    """

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown body, because kernels and references would treat it as a sum."""
        if self.body not in BODIES:
            raise ValueError(f"{self.name}: body {self.body!r}, expected one of {', '.join(BODIES)}")

    @property
    def reduction(self) -> Reduction:
        """The reduction that combines the terms along the reduce axes."""
        return BODIES[self.body].reduction

    @property
    def accumulator(self) -> str:
        """Data type of the accumulators of the reduction."""
        return ACCUMULATOR[self.dtype]

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Extent of every axis, spatial axes first."""
        return tuple(axis.extent for axis in self.axes)

    @cached_property
    def spatial(self) -> tuple[int, ...]:
        """Indices of the spatial axes."""
        return tuple(i for i, axis in enumerate(self.axes) if axis.kind == "spatial")

    @cached_property
    def reduce(self) -> tuple[int, ...]:
        """Indices of the reduce axes."""
        return tuple(i for i, axis in enumerate(self.axes) if axis.kind == "reduce")

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Input tensors in the order of a kernel's arguments: those the body reads, then operands of the epilogue."""
        extra = tuple(stage.access.tensor for stage in self.epilogue if stage.access is not None)
        return tuple(access.tensor for access in self.reads) + extra

    @property
    def id_limits(self) -> Mapping[str, int]:
        """Limits of inputs with row indices of a table, by name: empty, because an operator has no such input."""
        return {}

    @property
    def spreads(self) -> Mapping[str, float]:
        """Standard deviation for the random operands of a quantised epilogue, by the operand's name.

        Products of uniform int8 have a standard deviation of 74**2. After `dequantize` it is about 60, so that some elements are
        clipped. Empty without `dequantize`.
        """
        named = {stage.name: place for place, stage in enumerate(self.epilogue)}
        if "dequantize" not in named:
            return {}
        first = 60.0 / (74.0**2 * math.sqrt(self.points / self.output.size))
        later = (stage.access.tensor for stage in self.epilogue[named["dequantize"] + 1 :] if stage.access is not None)
        found = {one.name: 1.0 if one.name.startswith("scale") else 16.0 for one in later if one.dtype == "float32"}
        return {"dequantize": first, **found}

    @property
    def output(self) -> Tensor:
        """Tensor that the operator writes."""
        return self.write.tensor

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The single output, as a tuple like in `Computation`."""
        return (self.output,)

    @property
    def channel_dimension(self) -> int:
        """Dimension of the output view that the channel axis indexes. With groups, a second axis indexes it too."""
        return next(d for d, row in enumerate(self.write.coefficients) if row[self.channel_axis] > 0)

    @property
    def points(self) -> int:
        """Number of points of the loops: the product of all extents."""
        return math.prod(self.extents)

    @property
    def flops(self) -> int:
        """Number of operations of the body: two for each multiply-add, one for each addition, comparison or mapped element."""
        return self.points * BODIES[self.body].flops

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that any kernel must at least move: each touched element of inputs and output once.

        Elements that a strided access skips do not count (a 1x1 window of stride 2 reads a quarter).
        """
        reads = sum(touched(access, self.extents) * ITEM_BYTES[access.tensor.dtype] for access in self.reads)
        extra = sum(stage.access.tensor.nbytes for stage in self.epilogue if stage.access is not None)
        return reads + extra + self.output.nbytes

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: flops per compulsory byte."""
        return self.flops / self.compulsory_bytes

    def __str__(self) -> str:
        """Return text that `operators.parse` reads: `gemm(m=4, n=4, k=4, dtype="float16")+bias+relu`, or `frozen gemm(..)`."""
        shown = [(key, f'"{value}"' if isinstance(value, str) else repr(value)) for key, value in self.arguments]
        words = [f"{key}={value}" for key, value in shown]
        prefix = FROZEN if self.frozen else ""
        return f"{prefix}{self.name}({', '.join(words)})" + "".join(f"+{stage.name}" for stage in self.epilogue)


def touched(access: Access, extents: tuple[int, ...]) -> int:
    """Return how many distinct elements of a tensor's view the loops read or write."""
    return math.prod(_touched_along(access, d, extents) for d in range(len(access.view)))


def _touched_along(access: Access, dimension: int, extents: tuple[int, ...]) -> int:
    """Return how many distinct indices inside the view the loops use along one dimension.

    The indices are a sum of strided ranges, enumerated range by range.
    """
    size = access.view[dimension]
    terms = [(c, n) for c, n in zip(access.coefficients[dimension], extents, strict=True) if c > 0 and n > 1]
    if len(terms) == 1 and terms[0][0] == 1:  # the common case, for which an array of indices could be huge
        low, high = access.span(dimension, extents)
        return max(0, min(high, size - 1) - max(low, 0) + 1)
    index = np.array([access.offset[dimension]], dtype=np.int64)
    for coefficient, extent in terms:
        index = np.unique((index[:, None] + coefficient * np.arange(extent, dtype=np.int64)).ravel())
    return int(np.count_nonzero((index >= 0) & (index < size)))
