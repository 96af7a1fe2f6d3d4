"""The computation of a kernel, for compiling, verifying, timing and calling: one loop nest or a graph of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gensor_gym.operators.loops import Tensor


class Computation(Protocol):
    """An `Operator` or a `dataflow.Dataflow`. Hashable; equal ones compute the same."""

    def __hash__(self) -> int:
        """Hash of the computation."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Inputs of a call, in order."""

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Outputs of a call, in order."""

    @property
    def id_limits(self) -> Mapping[str, int]:
        """Number of rows to choose from, for every input that holds row ids."""

    @property
    def dtype(self) -> str:
        """Data type of the arithmetic, the key of peak rates."""

    @property
    def flops(self) -> int:
        """Operations, as the field counts them."""

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that any kernel must move: every input read and every output written once."""
