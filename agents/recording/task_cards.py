"""Print the size and difficulty of tasks as cards: `python -m experiments task_cards OPERATOR.. [--space compact]`.

Everything is exact if all states can be visited. In a larger space the optimum is certified, and the shares are estimated from
programs drawn uniformly from all legal programs. The card states the number of these programs.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agents.cli.parser import Parser
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import certify
from gensor_gym.exact.sampling import sample_evenly
from gensor_gym.exact.shipped import certificate_of
from gensor_gym.exact.states import StateGraph, explore
from gensor_gym.graph.enumeration import count_schedules

NEAR = (0.01, 0.05, 0.10)


@dataclass(frozen=True)
class Card:
    """Size and difficulty of a task as a search problem."""

    operator: str
    hardware: str
    space: str
    horizon: int
    candidates: int
    """Number of combinations of tile sizes (one per axis and level), virtual threads and knobs, legal or not."""
    states: int | None
    """Number of legal states that actions lead to, at every level; None if there are too many to visit."""
    branching: float
    """Mean number of legal actions of a state besides `stop`, over all states or over the drawn states."""
    most_actions: int
    depth: int | None
    """Smallest number of actions that lead to the farthest state."""
    to_optimum: int | None
    """Smallest number of actions that lead to an optimal state."""
    optimum_us: float
    optima: int | None
    near: dict[str, float]
    """Shares of states within 1, 5 and 10 percent of the optimum."""
    drawn: int | None
    """Number of programs from which shares and branching are estimated; None if they are exact."""


def card_of(graph: ConstructionGraph, most: int = 20_000, candidates: int = 200_000, seed: int = 0) -> Card:
    """Compute the size and difficulty of a task.

    Up to `most` states are visited. If there are more, programs are drawn from `candidates` candidates instead.
    """
    try:
        states = explore(graph, most)
    except ValueError:
        return _drawn(graph, candidates, np.random.default_rng(seed))
    return _visited(graph, states)


def _visited(graph: ConstructionGraph, states: StateGraph) -> Card:
    actions = np.bincount(states.source, minlength=len(states.rows))
    best = float(states.seconds.min())
    return _card(
        graph, states=len(states.rows), branching=float(actions.mean()), most_actions=int(actions.max()),
        depth=int(states.depth.max()), to_optimum=int(states.depth[states.optimal].min()), optimum_us=best * 1e6,
        optima=int(states.optimal.sum()), near=_near(states.seconds, best), drawn=None,
    )  # fmt: skip


def _drawn(graph: ConstructionGraph, candidates: int, rng: np.random.Generator) -> Card:
    certificate = certificate_of(graph) or certify(graph)
    rows = sample_evenly(graph, rng, candidates)
    actions = graph.action_masks(rows).sum(axis=1) - 1
    return _card(
        graph, states=None, branching=float(actions.mean()) if len(rows) else float("nan"),
        most_actions=int(actions.max(initial=0)), depth=None, to_optimum=None, optimum_us=certificate.optimum * 1e6,
        optima=certificate.optima, near=_near(graph.latencies(rows), certificate.optimum), drawn=len(rows),
    )  # fmt: skip


def _card(graph: ConstructionGraph, **rest: object) -> Card:
    candidates = count_schedules(graph.tables.ints, graph.tables.sizes)
    return Card(str(graph.operator), graph.hardware.name, graph.space, graph.horizon, candidates, **rest)  # type: ignore[arg-type]


def _near(seconds: np.ndarray, best: float) -> dict[str, float]:
    """Return, for each share in `NEAR`, the fraction of latencies that exceed the best by at most that share."""
    return {f"{share:.0%}": float((seconds <= best * (1 + share)).mean()) if len(seconds) else 0.0 for share in NEAR}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the size and difficulty of each operator's task as a JSON line."""
    parser = Parser(prog="python -m experiments task_cards", description="Say how large and hard tasks are.")
    parser.add_argument("operators", nargs="+")
    parser.add_argument("--hardware", default="h200")
    parser.add_argument("--space", default="compact")
    args = parser.parse_args(arguments)
    try:
        ops = dict.fromkeys(op for spec in args.operators for op in operators.resolve(spec))
        graphs = [ConstructionGraph(op, args.hardware, args.space) for op in ops]
    except ValueError as error:
        parser.error(str(error))
    for graph in graphs:
        print(json.dumps(dataclasses.asdict(card_of(graph))), flush=True)
    return 0
