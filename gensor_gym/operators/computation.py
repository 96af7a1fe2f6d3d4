"""What a kernel computes, as whoever compiles, verifies, times and calls it sees it: one loop nest or a graph of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gensor_gym.operators.loops import Tensor


class Computation(Protocol):
    """An `Operator` or a `dataflow.Dataflow`. Hashable; equal ones compute the same."""

    def __hash__(self) -> int:
        """Of what it computes."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What a call takes, in order."""

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """What a call gives, in order."""

    @property
    def id_limits(self) -> Mapping[str, int]:
        """Of every input that has ids of rows how many rows there are to choose from."""

    @property
    def dtype(self) -> str:
        """Data type of the arithmetic, by which peaks are known."""

    @property
    def flops(self) -> int:
        """Operations, as the field counts them."""

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that any kernel must move: every input read and every output written once."""
