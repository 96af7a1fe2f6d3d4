"""The computation of a kernel, for compiling, verifying, timing and calling: one loop nest or a dataflow graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gensor_gym.operators.loops import Tensor


class Computation(Protocol):
    """Interface of `Operator` and `dataflow.Dataflow`: hashable values. Equal values compute the same."""

    def __hash__(self) -> int:
        """Hash of the computation."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Input tensors of a call, in order."""

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Output tensors of a call, in order."""

    @property
    def id_limits(self) -> Mapping[str, int]:
        """Number of rows of the table, by the name of each input that contains row ids of a table."""

    @property
    def dtype(self) -> str:
        """Data type of the arithmetic, the key of peak rates."""

    @property
    def flops(self) -> int:
        """Number of operations. A multiply-add counts as two."""

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that any kernel must move: every input read once and every output written once."""
