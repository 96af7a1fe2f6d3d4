"""The graph of schedules of one chain of products (attention) on a CPU, with the interface that searches use."""

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
    """Construction graph of a chain on a CPU: nodes are schedules of `operator` for `hardware`, edges raise or lower a field."""

    actions, kind, parts = ACTIONS, ChainSchedule, TERMS
    model: ChainModel

    def __init__(self, operator: Dataflow, hardware: Hardware, space: str = "gir") -> None:
        """Recognise the chain and build its model. ValueError for another graph, a machine but a CPU, or a space but `gir`."""
        if hardware.kind != "cpu" or space != "gir":
            raise ValueError(f"{operator} on {hardware.name}, space {space!r}: expected a CPU and space gir")
        self.operator, self.hardware, self.space = operator, hardware, space
        self.chain = chain_of(operator)
        self.model = ChainModel(self.chain, hardware)

    @cached_property
    def floor(self) -> float:
        """Lower bound in seconds on the time of any program, from the roofline."""
        return roofline_floor(self.operator, self.hardware)
