"""Families of computations: plain operators, convolutions by Winograd's algorithm, panels, chains, and row nests.

The computations of a family share a kind of schedule, a construction graph of schedules and a code generator.

A new family is a class here, an entry in `FAMILIES`, a folder of its own, and a method `generate_..` of the targets that support
it (`codegen/targets/target.py`); CONTRIBUTING.md lists the rest. Other code finds the family of a computation by `family_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, Protocol

from gensor_gym.chains.chain import chain_of, is_chain
from gensor_gym.chains.gpu.graph import GpuChainGraph
from gensor_gym.chains.gpu.schedule import GpuChainSchedule
from gensor_gym.chains.graph import ChainGraph
from gensor_gym.chains.panel import is_panel, panel_of
from gensor_gym.chains.schedule import ChainSchedule
from gensor_gym.codegen import targets
from gensor_gym.codegen.chains.panel import PanelProgram
from gensor_gym.codegen.chains.program import AnyChainSchedule, ChainProgram
from gensor_gym.codegen.gir.generate import GirProgram
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import lower
from gensor_gym.codegen.winograd.program import WinogradProgram
from gensor_gym.construction import ConstructionGraph
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.parts import nest_on
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator
from gensor_gym.winograd.graph import WinogradGraph
from gensor_gym.winograd.schedule import WinogradSchedule

AnySchedule = Schedule | GirSchedule | AnyChainSchedule | WinogradSchedule
Schedules = Mapping[str, type[AnySchedule]]
AnyGraph = ConstructionGraph | GirGraph | ChainGraph | GpuChainGraph | WinogradGraph


class Family(Protocol):
    """Computations with one code generator and, for each kind of machine, one class of schedules and of construction graphs."""

    @property
    def schedules(self) -> Mapping[str, type[AnySchedule]]:
        """Class of the family's schedules for each kind of machine (`Hardware.kind`, such as `cpu`)."""

    def accepts(self, computation: Operator | Dataflow) -> bool:
        """Return whether the computation belongs to the family.

        It is called only if no earlier family of `FAMILIES` accepts the computation.
        """

    def scheduled(self, computation: Any) -> Operator | Dataflow:
        """Return the part of a computation to which its schedules apply: the whole computation, or the product in it."""

    def graph(self, computation: Any, hardware: Hardware, space: str | None) -> AnyGraph:
        """Return the construction graph of a computation's schedules in a space.

        A `space` of None means the space that contains all others.
        """

    def generate(self, computation: Any, schedule: Any, hardware: Hardware) -> Kernel:
        """Generate the kernel of a schedule; ValueError if no code can be generated for it."""


class Winograds:
    """The family of convolutions by Winograd's algorithm, on CPUs."""

    schedules: ClassVar[Schedules] = {"cpu": WinogradSchedule, "gpu": WinogradSchedule}

    def accepts(self, computation: Operator | Dataflow) -> bool:
        """Return whether the computation is a convolution with `winograd=2`."""
        return isinstance(computation, Operator) and computation.winograd > 0

    def scheduled(self, computation: Operator) -> Operator:
        """Return the operator itself."""
        return computation

    def graph(self, computation: Operator, hardware: Hardware, space: str | None) -> WinogradGraph:
        """Return the construction graph of the operator's schedules; a `space` of None means `gir`."""
        return WinogradGraph(computation, hardware, space or "gir")

    def generate(self, computation: Operator, schedule: WinogradSchedule, hardware: Hardware) -> Kernel:
        """Generate the operator's kernel; ValueError if the machine's target has no generator of Winograd's algorithm."""
        return targets.target_of(hardware).generate_winograd(WinogradProgram(computation, schedule, hardware))


class LoopNests:
    """The family of plain operators, such as a matrix product or a convolution: each is one loop nest."""

    schedules: ClassVar[Schedules] = {"cpu": Schedule, "gpu": Schedule}

    def accepts(self, computation: Operator | Dataflow) -> bool:
        """Return whether the computation is a plain operator, not a fused one."""
        return isinstance(computation, Operator)

    def scheduled(self, computation: Operator) -> Operator:
        """Return the operator itself."""
        return computation

    def graph(self, computation: Operator, hardware: Hardware, space: str | None) -> ConstructionGraph:
        """Return the construction graph of the operator's schedules; a `space` of None means `extended`."""
        return ConstructionGraph(computation, hardware, space or "extended")

    def generate(self, computation: Operator, schedule: Schedule, hardware: Hardware) -> Kernel:
        """Generate the operator's kernel for a schedule, in the language of the machine's target."""
        return targets.target_of(hardware).generate(lower(computation, schedule, hardware))


class Panels:
    """The family of panels: a matrix product with a row nest after it, such as a layer norm.

    The schedules are those of the product.
    """

    schedules: ClassVar[Schedules] = {"cpu": Schedule, "gpu": Schedule}

    def accepts(self, computation: Operator | Dataflow) -> bool:
        """Return whether the computation is a fused operator with exactly one product."""
        return isinstance(computation, Dataflow) and is_panel(computation)

    def scheduled(self, computation: Dataflow) -> Operator:
        """Return the panel's product."""
        return panel_of(computation).product

    def graph(self, computation: Dataflow, hardware: Hardware, space: str | None) -> ConstructionGraph:
        """Return the construction graph of the product's schedules; a `space` of None means `extended`."""
        return ConstructionGraph(self.scheduled(computation), hardware, space or "extended")

    def generate(self, computation: Dataflow, schedule: Schedule, hardware: Hardware) -> Kernel:
        """Generate the kernel of the panel; ValueError if the machine's target has no generator of panels."""
        return targets.target_of(hardware).generate_panel(PanelProgram(panel_of(computation), schedule, hardware))


class Chains:
    """The family of chains: two matrix products with a row nest between them, as in attention."""

    schedules: ClassVar[Schedules] = {"cpu": ChainSchedule, "gpu": GpuChainSchedule}

    def accepts(self, computation: Operator | Dataflow) -> bool:
        """Return whether the computation is a fused operator with exactly two products."""
        return isinstance(computation, Dataflow) and is_chain(computation)

    def scheduled(self, computation: Dataflow) -> Dataflow:
        """Return the whole chain."""
        return computation

    def graph(self, computation: Dataflow, hardware: Hardware, space: str | None) -> ChainGraph | GpuChainGraph:
        """Return the construction graph of the chain's schedules; a `space` of None means `gir`."""
        return (ChainGraph if hardware.kind == "cpu" else GpuChainGraph)(computation, hardware, space or "gir")

    def generate(self, computation: Dataflow, schedule: AnyChainSchedule, hardware: Hardware) -> Kernel:
        """Generate the kernel of the chain; ValueError if the machine's target has no generator of chains."""
        return targets.target_of(hardware).generate_chain(ChainProgram(chain_of(computation), schedule, hardware))


class RowNests:
    """The family of all other fused operators, computed as row nests (loops over rows and their columns)."""

    schedules: ClassVar[Schedules] = {"cpu": GirSchedule, "gpu": GirSchedule}

    def accepts(self, computation: Operator | Dataflow) -> bool:
        """Return whether the computation is a fused operator; earlier families have accepted panels and chains."""
        return isinstance(computation, Dataflow)

    def scheduled(self, computation: Dataflow) -> Dataflow:
        """Return the fused operator itself."""
        return computation

    def graph(self, computation: Dataflow, hardware: Hardware, space: str | None) -> GirGraph:
        """Return the construction graph of the row nest's schedules; a `space` of None means `gir`."""
        return GirGraph(computation, hardware, space or "gir")

    def generate(self, computation: Dataflow, schedule: GirSchedule, hardware: Hardware) -> Kernel:
        """Generate the kernel of the row nest; ValueError if the machine's target has no generator of fused operators."""
        return targets.target_of(hardware).generate_fused(GirProgram(nest_on(computation, hardware), schedule, hardware))


FAMILIES: tuple[Family, ...] = (Winograds(), LoopNests(), Panels(), Chains(), RowNests())
"""All families, in order: a computation belongs to the first family that accepts it."""


def parsed(computation: Operator | Dataflow, text: str) -> AnySchedule:
    """Read a computation's schedule from its stored text, for any kind of machine; ValueError if the text is invalid.

    Schedules of one family for different kinds of machines have fields of different names.
    """
    first, *others = dict.fromkeys(family_of(computation).schedules.values())
    for kind in others:
        with suppress(ValueError):
            return kind.parse(text)
    return first.parse(text)


def is_parsed(text: str) -> bool:
    """Return whether a text is a schedule of some family, for a computation that is not known."""
    for kind in dict.fromkeys(kind for family in FAMILIES for kind in family.schedules.values()):
        with suppress(ValueError, OverflowError):
            kind.parse(text)
            return True
    return False


def family_of(computation: Operator | Dataflow) -> Family:
    """Return the first family that accepts a computation."""
    return next(family for family in FAMILIES if family.accepts(computation))


def graph_of(computation: Operator | Dataflow, hardware: Hardware, space: str | None = None) -> AnyGraph:
    """Return the construction graph of a computation's schedules; a `space` of None means the space that contains all others."""
    return family_of(computation).graph(computation, hardware, space)
