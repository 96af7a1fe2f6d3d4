"""Benchmark of constructing programs with the analytic model: wall time, number of visited states, and latency.

Latencies are relative to the best known program. Coordinate descents in compiled code (`exact.incumbent`), with which the proof
of an optimum begins, are timed too: they are the baseline in wall time for a policy that needs few evaluations.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from omegaconf import DictConfig

from agents import get_strategy
from agents.core.programs import Programs
from agents.core.ranking import Construction
from experiments.benches.lines import Lines, machine, resolved
from experiments.common.statistics import geometric_mean, interquartile_mean
from experiments.comparison.summary import interval
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.incumbent import incumbent
from gensor_gym.exact.optimum import enumerated, moving_knobs
from gensor_gym.exact.shipped import certificate_of
from gensor_gym.graph.enumeration import count_schedules
from gensor_gym.graph.schedule import Schedule
from gensor_gym.operators.types import Operator


@dataclass(frozen=True)
class Descents:
    """Strategy that runs `restarts` coordinate descents on a GPU model (`exact.incumbent`) and returns the fastest program."""

    space: str
    restarts: int

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Run the descents and return their fastest program; every evaluated program counts as a visited state."""
        begin, seed = time.perf_counter(), int(rng.integers(2**31))
        row, seconds, evaluations = incumbent(graph, moving_knobs(graph), self.restarts, seed)
        return Construction((Schedule(row),), (seconds,), evaluations, evaluations, time.perf_counter() - begin)


def run(config: DictConfig, emit: Lines) -> None:
    """Time the construction of programs by each strategy on each operator.

    Emit one line about the machine, one for each distinct operator, and one that summarises all operators.
    """
    settings = config.construct
    emit(kind="machine", hardware=settings.hardware, space=settings.space, **machine())
    ops = resolved(settings.operators)
    strategies: dict[str, Any] = {name: get_strategy(name) for name in (settings.strategy, settings.baseline)}
    strategies |= {f"descents_{count}": Descents(settings.space, count) for count in settings.descents}
    for strategy in strategies.values():  # compile before construction is timed
        strategy.construct(ConstructionGraph(ops[0], settings.hardware, strategy.space), np.random.default_rng(0))
    rows = []
    for op in ops:
        rows.append(_shape(op, settings, strategies, config.seed))
        emit(kind="shape", **rows[-1])
    emit(kind="all", **_overall(rows, settings, strategies))


def _shape(op: Operator, settings: DictConfig, strategies: dict[str, Any], seed: int) -> dict[str, Any]:
    target = ConstructionGraph(op, settings.hardware, settings.space)
    begin = time.perf_counter()
    best, certified = best_known(target, settings.enumerate, settings.restarts, np.random.default_rng(seed))
    row: dict[str, Any] = {"operator": str(op), "best_known_search_s": time.perf_counter() - begin}
    for name, strategy in strategies.items():
        found, wall = [], []
        for repeat in range(settings.repeats):
            graph = ConstructionGraph(op, settings.hardware, strategy.space)
            begin = time.perf_counter()
            found.append(strategy.construct(graph, np.random.default_rng(seed + repeat)))
            wall.append(time.perf_counter() - begin)
        at = int(np.argmin(found[0].latencies))
        row[name] = {
            "seconds": interval(wall), "latency_s": float(found[0].latencies[at]), "visited": found[0].visited,
            "visited_per_walk": found[0].visited / getattr(strategy, "walkers", 1),
            "evaluations": found[0].evaluations,
        }  # fmt: skip
        if target.is_legal(found[0].schedules[at]):
            best = min(best, target.latency(found[0].schedules[at]))
    for name in strategies:
        row[name]["over_best_known"] = row[name]["latency_s"] / best
    return {**row, "best_known_s": best, "certified": certified}


def best_known(graph: ConstructionGraph, enumerate_up_to: int, restarts: int, rng: np.random.Generator) -> tuple[float, bool]:
    """Return (seconds, certified): the predicted time of the best known program, and whether it is proven to be the optimum.

    The program comes from a shipped certificate, from enumerating the space if it has at most `enumerate_up_to` schedules, or
    else from `restarts` coordinate descents.
    """
    if (certificate := certificate_of(graph)) is not None:
        return certificate.optimum, True
    if count_schedules(graph.tables.ints, graph.tables.sizes) <= enumerate_up_to:
        return enumerated(graph).seconds, True
    programs = Programs(graph)
    return min(programs.descend(graph.random_schedule(rng).row)[1] for _ in range(restarts)), False


def _overall(rows: list[dict[str, Any]], settings: DictConfig, strategies: dict[str, Any]) -> dict[str, object]:
    ours, theirs = settings.strategy, settings.baseline
    line: dict[str, object] = {
        "shapes": len(rows),
        "certified": sum(row["certified"] for row in rows),
        f"{ours}_slower_than_{theirs}": sum(row[ours]["latency_s"] > row[theirs]["latency_s"] * (1 + 1e-9) for row in rows),
        f"{theirs}_over_{ours}": geometric_mean(row[theirs]["latency_s"] / row[ours]["latency_s"] for row in rows),
    }
    for name in strategies:
        seconds = [row[name]["seconds"]["median"] for row in rows]
        regrets = np.log([row[name]["over_best_known"] for row in rows if row["certified"]])  # log(T / T*)
        line[name] = {
            "over_best_known": geometric_mean(row[name]["over_best_known"] for row in rows),
            "worst_over_best_known": max(row[name]["over_best_known"] for row in rows),
            "iqm_regret": float(interquartile_mean(regrets, axis=0)) if len(regrets) else None,
            "median_evaluations": float(np.median([row[name]["evaluations"] for row in rows])),
            "median_seconds": float(np.median(seconds)),
            "largest_seconds": max(seconds),
            "median_visited": float(np.median([row[name]["visited"] for row in rows])),
            "median_visited_per_walk": float(np.median([row[name]["visited_per_walk"] for row in rows])),
        }
    return line
