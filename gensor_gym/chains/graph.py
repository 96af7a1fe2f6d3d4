"""The construction graph of schedules of a chain of two products (attention) on a CPU, with the interface that searches use."""

from __future__ import annotations

from functools import cached_property

from gensor_gym.chains.chain import chain_of
from gensor_gym.chains.model import TERMS, ChainModel
from gensor_gym.chains.schedule import FIELDS, ChainSchedule
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.hardware.types import Hardware
from gensor_gym.rows.field_graph import FieldGraph, actions_of

ACTIONS = actions_of(FIELDS)


class ChainGraph(FieldGraph[ChainSchedule]):
    """Construction graph of a chain of two products on a CPU.

    Nodes are schedules of `operator` for `hardware`, edges raise or lower one field.
    """

    actions, kind, parts = ACTIONS, ChainSchedule, TERMS
    model: ChainModel

    def __init__(self, operator: Dataflow, hardware: Hardware, space: str = "gir") -> None:
        """Recognise the operator as a chain and build its analytic model.

        ValueError for an operator that is no chain, a machine that is no CPU, or another space than `gir`.
        """
        if hardware.kind != "cpu" or space != "gir":
            raise ValueError(f"{operator} on {hardware.name}, space {space!r}: expected a CPU and space gir")
        self.operator, self.hardware, self.space = operator, hardware, space
        self.chain = chain_of(operator)
        self.model = ChainModel(self.chain, hardware)

    @cached_property
    def floor(self) -> float:
        """Lower bound in seconds on the time of any program, from the roofline."""
        return roofline_floor(self.operator, self.hardware)
