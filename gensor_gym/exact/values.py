"""Values of all states of a small task's decision process, computed by backward induction.

The process has a finite horizon and a step cost. It is the one in `docs/design.md` with rewards from the model, over legal
actions: an illegal action changes nothing and costs its step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.roofline import CAP_OVER_FLOOR
from gensor_gym.exact.states import StateGraph, explore
from gensor_gym.graph.actions import STOP


@dataclass(frozen=True, eq=False)
class Values:
    """Values of all states of the decision process, float64 [H + 1, S], and its rewards.

    The first index of `values` is the number of steps left (row 0 is unused), the second the state.
    """

    states: StateGraph
    values: np.ndarray
    stop: np.ndarray
    """Reward of `stop` in each state, float64 [S]."""
    paid: np.ndarray
    """Reward of the action of each edge, float64 [E]."""
    discount: float

    @property
    def horizon(self) -> int:
        """Maximum number of steps of an episode."""
        return len(self.values) - 1

    def edge_values(self, left: int) -> np.ndarray:
        """Return the value of taking each edge with `left` steps left, float64 [E].

        It is -inf with one step left, when only `stop` is legal.
        """
        if left <= 1:
            return np.full(len(self.paid), -np.inf)
        return self.paid + self.discount * self.values[left - 1][self.states.target]

    def best_action(self, state: int, left: int) -> int:
        """Return the best action of a state: `stop` if no action has a greater value, else the first in the order of actions."""
        mine = np.flatnonzero(self.states.source == state)
        gains = self.edge_values(left)[mine]
        if len(mine) == 0 or self.stop[state] >= gains.max():
            return STOP
        return int(self.states.action[mine[int(np.argmax(gains))]])

    def path(self) -> list[tuple[int, int]]:
        """Return an optimal episode from the unscheduled program as (state, action) pairs, ending with `stop`."""
        state, steps = 0, []
        for left in range(self.horizon, 0, -1):
            action = self.best_action(state, left)
            steps.append((state, action))
            if action == STOP:
                break
            edge = np.flatnonzero((self.states.source == state) & (self.states.action == action))[0]
            state = int(self.states.target[edge])
        return steps


def solve(
    graph: ConstructionGraph,
    discount: float = 1.0,
    step_cost: float = 0.001,
    shaping: bool = True,
    states: StateGraph | None = None,
) -> Values:
    """Compute the value of every state for every number of steps left. ValueError if the task has too many states."""
    states = states or explore(graph)
    phi = np.log(states.seconds[0] / states.seconds) if shaping else np.zeros(len(states.seconds))
    stop = np.maximum(0.0, np.log(CAP_OVER_FLOOR * graph.floor / states.seconds)) - phi
    paid = discount * phi[states.target] - phi[states.source] - step_cost
    values = np.full((graph.horizon + 1, len(stop)), np.nan)
    values[1] = stop
    found = Values(states, values, stop, paid, discount)
    leaving, begin = np.unique(states.source, return_index=True)
    for left in range(2, graph.horizon + 1):
        values[left] = stop
        if len(leaving):
            best = np.maximum.reduceat(found.edge_values(left), begin)
            values[left][leaving] = np.maximum(stop[leaving], best)
    return found
