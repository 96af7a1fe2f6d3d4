"""Operators in half precision beside those of float32: the classes that tensor cores compute, with the same extents."""

from __future__ import annotations

from collections.abc import Sequence

from gensor_gym.operators.text import FACTORIES
from gensor_gym.operators.types import Operator

CLASSES = ("gemm", "batched_gemm", "conv2d")
DTYPE = "float16"


def halves(given: Sequence[Operator]) -> list[Operator]:
    """Every float32 operator of CLASSES in DTYPE, epilogue included, in order; a split has both in the same part."""
    return [_half(op) for op in given if op.name in CLASSES and op.dtype == "float32"]


def _half(op: Operator) -> Operator:
    """One operator."""
    made = FACTORIES[op.name](**{**dict(op.arguments), "dtype": DTYPE})
    return made.with_epilogue(*(stage.name for stage in op.epilogue))
