"""Tasks and sessions of a suite's track of plans: networks by name, priced by the models. The optimum is proved."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from gensor_gym import hardware as machines
from gensor_gym.graph.actions import STOP
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.session import Budget, BudgetSpent, SearchSession
from gensor_gym.networks.fusion.prices import price
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan
from gensor_gym.networks.planning.drawn import drawn, network_of
from gensor_gym.networks.planning.graph import PlanGraph
from gensor_gym.suites.session import OnTrial

SPACE = PlanGraph.space
"""Space of the tasks whose programs are plans."""
_WALKS = 8
"""Episodes of fixed random decisions in a mark."""


@cache
def network_named(name: str) -> Network:
    """The network with a name such as `normed(seed=7)`; ValueError for another text."""
    graph = drawn(name)
    if graph is None:
        raise ValueError(f"{name!r}: expected the name of a random network, such as normed(seed=7)")
    return network_of(graph)


@cache
def mark(name: str, hardware: str) -> str:
    """Sixteen hexadecimal digits that change with a network, its decisions or their prices, along fixed episodes."""
    graph = PlanGraph(network_named(name), machines.get(hardware))
    found = hashlib.sha256(graph.operator.graph.digest.encode())
    draws = np.random.PCG64(0).random_raw((_WALKS, graph.horizon)).tolist()
    for walk in draws:
        state = graph.first
        for draw in walk:
            legal = [action for action, may in enumerate(state.mask) if may and action != STOP]
            found.update(f"{legal} {state.seconds:.5g}\n".encode())
            if not legal:
                break
            state = graph.after(state, legal[draw % len(legal)])
    return found.hexdigest()[:16]


@dataclass(frozen=True)
class PlanTask:
    """A network on a machine, as a `measure.search.SearchTask`."""

    operator: Network
    hardware: Hardware


class PlanSession(SearchSession[Plan]):
    """Session that prices plans. A trial is a distinct plan; decisions in `graph`, a `PlanGraph`, count as evaluations."""

    graph: PlanGraph  # type: ignore[assignment]

    def __init__(self, name: str, hardware: str, budget: Budget, on_trial: OnTrial | None = None) -> None:
        """Build the graph. ValueError for an unknown network or machine."""
        task = PlanTask(network_named(name), machines.get(hardware))
        graph = PlanGraph(task.operator, task.hardware)
        super().__init__(task, graph, _Prices(), budget, on_trial=on_trial)  # type: ignore[arg-type]
        graph.meter = self.charge

    def measure(self, schedules: Sequence[Plan]) -> list[Measurement]:
        """Price plans in order, as `SearchSession` does. ValueError unless they are a list of plans of the task's network."""
        network = self.task.operator
        if isinstance(schedules, Plan) or not all(isinstance(one, Plan) and one.network is network for one in schedules):
            raise ValueError(f"measure {schedules!r}: expected a list of plans of {network}, such as session.graph.plan_of makes")
        return super().measure(schedules)

    def charge(self, evaluations: int) -> None:
        """Count decisions. BudgetSpent if the budget allows fewer, or if its seconds are spent."""
        self.start()
        limit = self.budget.evaluations
        if self._seconds_out() or (limit is not None and self.evaluations + evaluations > limit):
            raise BudgetSpent(f"{self.evaluations} of {limit} decisions and {self.elapsed:.1f} s spent")
        self.evaluations += evaluations


class _Prices:
    """The prices of plans as a `measure.search.SearchBackend`. A plan without a price is ILLEGAL."""

    stored = False

    def device(self, hw: Hardware) -> str:
        return f"the models of {hw.name}"

    def digest(self, op: Network, node: Plan, hw: Hardware) -> str:
        return hashlib.sha256(str(node).encode()).hexdigest()

    def stream(self, op: Network, nodes: Sequence[Plan], hw: Hardware) -> Iterator[Measurement]:
        for plan in nodes:
            yield priced(plan, hw)


def priced(plan: Plan, hw: Hardware) -> Measurement:
    """The price of a plan by the models as a measurement; status ILLEGAL for an illegal plan and for loops of several pieces."""
    try:
        return Measurement(Status.OK, (price(plan, hw),))
    except ValueError as error:
        return Measurement(Status.ILLEGAL, error=str(error))


def seconds_of(name: str, hardware: str, text: str) -> float:
    """Seconds of the plan with this text, infinite if it has no price; ValueError for an unreadable text."""
    return priced(Plan.parse(network_named(name), text), machines.get(hardware)).seconds
