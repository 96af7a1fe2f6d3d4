"""The class `Operator`: the loops of an operator with methods that change or evaluate it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np

from gensor_gym.operators.epilogue import append_stages
from gensor_gym.operators.loops import (
    ACCUMULATOR,
    ARRAY_DTYPE,
    INPUT,
    ITEM_BYTES,
    OUTPUT,
    PRODUCT_TYPES,
    Access,
    Axis,
    Loops,
    Stage,
    Tensor,
    touched,
)  # fmt: skip
from gensor_gym.operators.reference import evaluate
from gensor_gym.operators.traits import weights

__all__ = [
    "ACCUMULATOR", "ARRAY_DTYPE", "INPUT", "ITEM_BYTES", "OUTPUT", "PRODUCT_TYPES",
    "Access", "Axis", "Operator", "Stage", "Tensor", "touched",
]  # fmt: skip


class Operator(Loops):
    """A tensor operator, such as a matrix product or a convolution, as a nest of loops.

    It computes output[spatial axes] = epilogue(reduction, over the reduce axes, of a term of the elements read). The body names
    term and reduction: `multiply_add` (sum of products of elements of two tensors), `sum`, `max` (of one tensor) or `map` (no
    reduce axis; `function` of the elements). A sum is divided by `divisor` before the epilogue. An access outside a tensor reads
    `pad_value`.
    """

    def with_epilogue(self, *names: str) -> Self:
        """Return the operator with elementwise stages appended, by their names in `gensor_gym.operators.epilogue`."""
        return append_stages(self, names)

    def freeze(self) -> Self:
        """Return the operator with its weights declared equal at every call. ValueError if it has no weights."""
        if weights(self) is None:
            raise ValueError(f"{self} has no weights to freeze: expected a product of a layer, such as gemm or conv2d")
        return replace(self, frozen=True)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        """Compute the output in float64 with NumPy, for arrays with the shapes of `inputs`. ValueError for other arrays."""
        return evaluate(self, inputs)

    def renamed(self, **changes: Any) -> Self:
        """Return a copy with some fields replaced."""
        return replace(self, **changes)
