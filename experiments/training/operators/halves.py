"""Operators in other data types than float32: the classes that tensor cores compute, with the same extents."""

from __future__ import annotations

from collections.abc import Sequence

from gensor_gym.operators.text import FACTORIES
from gensor_gym.operators.types import Operator

CLASSES = ("gemm", "batched_gemm", "conv2d")
DTYPE = "float16"


def halves(given: Sequence[Operator], dtype: str = DTYPE) -> list[Operator]:
    """Every float32 operator of CLASSES in another data type, with its epilogue, in order; a split has both in the same part."""
    return [_in_type(op, dtype) for op in given if op.name in CLASSES and op.dtype == "float32"]


def _in_type(op: Operator, dtype: str) -> Operator:
    """The operator in another data type."""
    made = FACTORIES[op.name](**{**dict(op.arguments), "dtype": dtype})
    return made.with_epilogue(*(stage.name for stage in op.epilogue))
