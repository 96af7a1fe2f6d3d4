"""The construction graph of schedules of a chain of two products (attention) on a GPU, with the interface that searches use."""

from __future__ import annotations

from functools import cached_property

from gensor_gym.chains.chain import chain_of
from gensor_gym.chains.gpu.legal import check
from gensor_gym.chains.gpu.model import TERMS, GpuChainModel
from gensor_gym.chains.gpu.schedule import FIELDS, GpuChainSchedule
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.hardware.types import Hardware
from gensor_gym.rows.field_graph import FieldGraph, actions_of

ACTIONS = actions_of(FIELDS)


class GpuChainGraph(FieldGraph[GpuChainSchedule]):
    """Construction graph of a chain of two products on a GPU.

    Nodes are schedules of `operator` for `hardware`, edges raise or lower one field.
    """

    actions, kind, parts = ACTIONS, GpuChainSchedule, TERMS
    model: GpuChainModel

    def __init__(self, operator: Dataflow, hardware: Hardware, space: str = "gir") -> None:
        """Recognise the operator as a chain and build its analytic model.

        ValueError if it is not a chain, if no kernel on tensor cores exists or fits, or for another space than `gir`.
        """
        if hardware.kind != "gpu" or space != "gir":
            raise ValueError(f"{operator} on {hardware.name}, space {space!r}: expected a GPU and space gir")
        self.operator, self.hardware, self.space = operator, hardware, space
        self.chain = chain_of(operator)
        check(self.chain, hardware)
        self.model = GpuChainModel(self.chain, hardware)
        if not self.is_legal(self.initial()):
            sizes = f"{self.chain.products[0].inner} elements of a key and {self.chain.products[1].columns} of a value"
            raise ValueError(f"{operator} on {hardware.name}: {sizes} are too many for a thread's registers or shared memory")

    @cached_property
    def fastest(self) -> float:
        """Predicted time of the fastest legal schedule, in seconds."""
        return min(float(self.latencies(rows).min()) for rows in self.enumerate())

    @cached_property
    def floor(self) -> float:
        """Lower bound in seconds on the time of any program, from the roofline."""
        return roofline_floor(self.operator, self.hardware)
