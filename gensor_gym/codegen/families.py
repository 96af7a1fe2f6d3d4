"""Families of programs: which computations each has, their schedules, the graph of these, and the text of one.

A new family is a class here and its entry in `FAMILIES`; whatever needs a graph or a kernel asks `family_of`.
"""

from __future__ import annotations

from typing import Any, Protocol

from gensor_gym.chains.chain import chain_of, is_chain
from gensor_gym.chains.graph import ChainGraph
from gensor_gym.chains.panel import is_panel, panel_of
from gensor_gym.chains.schedule import ChainSchedule
from gensor_gym.codegen import targets
from gensor_gym.codegen.chains.generate import ChainProgram
from gensor_gym.codegen.chains.panel import PanelProgram
from gensor_gym.codegen.gir.generate import GirProgram
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import lower
from gensor_gym.construction import ConstructionGraph
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.parts import nest_on
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

AnySchedule = Schedule | GirSchedule | ChainSchedule
AnyGraph = ConstructionGraph | GirGraph | ChainGraph


class Family(Protocol):
    """Computations whose programs are scheduled and written alike."""

    @property
    def schedule(self) -> type[AnySchedule]:
        """Class of its schedules."""

    def accepts(self, computation: Operator | Dataflow) -> bool:
        """Whether the computation is one of the family, if it is none of the families before it."""

    def scheduled(self, computation: Any) -> Operator | Dataflow:
        """The part of a computation that its schedules are of."""

    def graph(self, computation: Any, hardware: Hardware, space: str | None) -> AnyGraph:
        """The graph of schedules in a space; by default the one that contains every other."""

    def generate(self, computation: Any, schedule: Any, hardware: Hardware) -> Kernel:
        """The text of a schedule; ValueError if no code can be written for it."""


class LoopNests:
    """Operators, each one nest of loops."""

    schedule = Schedule

    def accepts(self, computation: Operator | Dataflow) -> bool:
        """See `Family`."""
        return isinstance(computation, Operator)

    def scheduled(self, computation: Operator) -> Operator:
        """The operator."""
        return computation

    def graph(self, computation: Operator, hardware: Hardware, space: str | None) -> ConstructionGraph:
        """See `Family`."""
        return ConstructionGraph(computation, hardware, space or "extended")

    def generate(self, computation: Operator, schedule: Schedule, hardware: Hardware) -> Kernel:
        """See `Family`."""
        return targets.target_of(hardware).generate(lower(computation, schedule, hardware))


class Panels:
    """Products with rows after them, scheduled as the product is."""

    schedule = Schedule

    def accepts(self, computation: Operator | Dataflow) -> bool:
        """See `Family`."""
        return isinstance(computation, Dataflow) and is_panel(computation)

    def scheduled(self, computation: Dataflow) -> Operator:
        """The product."""
        return panel_of(computation).product

    def graph(self, computation: Dataflow, hardware: Hardware, space: str | None) -> ConstructionGraph:
        """See `Family`."""
        return ConstructionGraph(self.scheduled(computation), hardware, space or "extended")

    def generate(self, computation: Dataflow, schedule: Schedule, hardware: Hardware) -> Kernel:
        """See `Family`."""
        return targets.target_of(hardware).generate_panel(PanelProgram(panel_of(computation), schedule, hardware))


class Chains:
    """Two products with rows between them, as in attention."""

    schedule = ChainSchedule

    def accepts(self, computation: Operator | Dataflow) -> bool:
        """See `Family`."""
        return isinstance(computation, Dataflow) and is_chain(computation)

    def scheduled(self, computation: Dataflow) -> Dataflow:
        """The whole chain."""
        return computation

    def graph(self, computation: Dataflow, hardware: Hardware, space: str | None) -> ChainGraph:
        """See `Family`."""
        return ChainGraph(computation, hardware, space or "gir")

    def generate(self, computation: Dataflow, schedule: ChainSchedule, hardware: Hardware) -> Kernel:
        """See `Family`."""
        return targets.target_of(hardware).generate_chain(ChainProgram(chain_of(computation), schedule, hardware))


class RowNests:
    """Every other fused operator: rows that are computed one after another."""

    schedule = GirSchedule

    def accepts(self, computation: Operator | Dataflow) -> bool:
        """See `Family`."""
        return isinstance(computation, Dataflow)

    def scheduled(self, computation: Dataflow) -> Dataflow:
        """The fused operator."""
        return computation

    def graph(self, computation: Dataflow, hardware: Hardware, space: str | None) -> GirGraph:
        """See `Family`."""
        return GirGraph(computation, hardware, space or "gir")

    def generate(self, computation: Dataflow, schedule: GirSchedule, hardware: Hardware) -> Kernel:
        """See `Family`."""
        return targets.target_of(hardware).generate_fused(GirProgram(nest_on(computation, hardware), schedule, hardware))


FAMILIES: tuple[Family, ...] = (LoopNests(), Panels(), Chains(), RowNests())
"""In order: a computation is of the first that accepts it."""


def family_of(computation: Operator | Dataflow) -> Family:
    """The family of a computation."""
    return next(family for family in FAMILIES if family.accepts(computation))


def graph_of(computation: Operator | Dataflow, hardware: Hardware, space: str | None = None) -> AnyGraph:
    """The graph of a computation's schedules; by default of the space that contains every other."""
    return family_of(computation).graph(computation, hardware, space)
