"""The operator: its loops and its methods."""

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
    """A tensor operator as loops: output[spatial] = epilogue(body over reduce axes of the reads).

    The body is `multiply_add` (sum of products of two reads), `sum`, `max` (one read) or `map` (no reduce axis; `function` of the
    reads). A sum is divided by `divisor` before the epilogue. Reads outside a tensor give `pad_value`.
    """

    def with_epilogue(self, *names: str) -> Self:
        """The operator with elementwise stages appended, by their names in `gensor_gym.operators.epilogue`."""
        return append_stages(self, names)

    def freeze(self) -> Self:
        """The operator with weights that are equal at every call. ValueError if it has no weights."""
        if weights(self) is None:
            raise ValueError(f"{self} has no weights to freeze: expected a product of a layer, such as gemm or conv2d")
        return replace(self, frozen=True)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        """Output for arrays with the shapes of `inputs`, computed with NumPy in float64. ValueError for other arrays."""
        return evaluate(self, inputs)

    def renamed(self, **changes: Any) -> Self:
        """Copy with some fields replaced."""
        return replace(self, **changes)
