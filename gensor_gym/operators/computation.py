"""Interface of a kernel's computation, one loop nest or a dataflow graph, for compiling, verifying, timing and calling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gensor_gym.operators.loops import Tensor


class Computation(Protocol):
    """Interface that operators and fused operators (`dataflow.Dataflow`) share.

    Both are hashable, and equal ones compute the same.
    """

    def __hash__(self) -> int:
        """Return the hash of the computation."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Input tensors of a call, in order."""

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Output tensors of a call, in order."""

    @property
    def id_limits(self) -> Mapping[str, int]:
        """Name of each input that contains row indices of a table -> number of rows of that table."""

    @property
    def dtype(self) -> str:
        """Data type of the arithmetic, such as `float32`, which selects a machine's peak rate."""

    @property
    def flops(self) -> int:
        """Number of operations. A multiply-add counts as two."""

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that any kernel must at least move: every input read once and every output written once."""
