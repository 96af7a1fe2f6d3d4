"""Plans of the suite's networks against the proved optimum, by the models: `python -m experiments.reproduce table=plans`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from agents.planning.local import descended
from agents.planning.searches import SEARCHES, searched
from experiments.networks.suite import SUITE, inputs_of, module_of
from experiments.studies.study import Stamp
from experiments.tables.table import Cell, Table
from gensor_gym import hardware
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.coarse import fine_coarse
from gensor_gym.networks.fusion.fine import fine
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan, cut_all
from gensor_gym.networks.planning.graph import PlanGraph

RULES: Mapping[str, Callable[[Network, Hardware], Plan]] = {"cut_all": lambda network, _: cut_all(network), "fine": fine}
MACHINE = "cascade_lake"
"""A machine whose figures are fixed: the host's are measured, so its table would change from run to run."""
BUDGET = 512
"""Decisions that a search may take."""
LOCAL = 1 << 14
"""Plans that the local search may price; a larger network has no such search in the table."""
NODES = 200
"""Most nodes of a network for searches, whose plans take long to price otherwise."""
NOTES = (
    f"Seconds are the sum of the pieces' by the models of `{MACHINE}`, each of the program of the constructor `descent`. Nothing "
    "is timed. Numbers of plans are percent above the optimum.",
    "Pieces: all that are legal and linked by what they read; states: of the dynamic program; the optimum holds among all plans "
    "of these pieces, which have no loops of several pieces. `fine_coarse` differs from `fine` by such loops alone, so it has "
    "no price of its own.",
    "local: the best single decision of `networks.fusion.decisions` from `cut_all`, until none saves time.",
)


def make_plans(config: DictConfig, folder: Path) -> list[Table]:
    """The networks of the suite: rules, searches and the optimum; `limit` caps the networks."""
    hw = hardware.get(MACHINE)
    rows = tuple(_row(name, hw, config.seeds) for name in list(SUITE)[: config.limit])
    proof = ("network", "nodes", "pieces", "states", "processor s", "optimum ms", "kernels")
    columns = (*proof, *RULES, "local", *SEARCHES, "loops of fine_coarse")
    return [Table("Plans of networks by the models", Stamp.PREDICTED, columns, rows, NOTES)]


def _row(name: str, hw: Hardware, seeds: list[int]) -> tuple[Cell, ...]:
    from gensor_gym.frontends.torch_export import from_torch

    network = folded(from_torch(module_of(name), inputs_of(name)))
    begin = time.process_time()
    graph = PlanGraph(network, hw)
    best, took = graph.best, time.process_time() - begin
    if best is None:
        return (name, float(len(graph.of.names)), *[None] * (5 + len(RULES) + 1 + len(SEARCHES) + 1))
    small, total = len(graph.of.names) <= NODES, graph.prices.total
    proof = float(best.pieces), float(best.states), took, 1e3 * best.seconds, float(len(best.plan.pieces))
    loops = sum(piece.follows > 0 for piece in fine_coarse(network, hw).pieces)
    return (
        name, float(len(graph.of.names)), *proof,
        *(above(total(rule(network, hw).pieces), best.seconds) for rule in RULES.values()),
        above(total(descended(cut_all(network), total, LOCAL)[0].pieces), best.seconds) if small else None,
        *(_mean(graph, search, seeds) for search in SEARCHES), float(loops),
    )  # fmt: skip


def above(seconds: float, least: float) -> float:
    """Percent above the optimum; rounding of sums in another order is none."""
    return max(0.0, round(100 * (seconds / least - 1), 6))


def _mean(graph: PlanGraph, search: str, seeds: list[int]) -> float | None:
    """Percent above the optimum of a search with `BUDGET` decisions, or as many as four episodes take."""
    if len(graph.of.names) > NODES and search != "greedy":
        return None
    assert graph.least is not None, "such networks have a proof"
    budget = max(BUDGET, 4 * len(graph.links))
    return float(np.mean([above(searched(SEARCHES[search], graph, budget, seed).seconds, graph.least) for seed in seeds]))
