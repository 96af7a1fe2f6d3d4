"""Construction by the analytic model: its wall time, its latency over the best known, and the number of states it visits.

The compiled coordinate descents that certification begins with are timed too. They are the baseline in wall time for a policy
with few evaluations.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from omegaconf import DictConfig

from agents import get_strategy
from agents.core.ranking import Construction
from experiments.benches.lines import Lines, machine, spread
from experiments.benches.searches.best_known import BestKnown, key_of, search
from experiments.statistics import statistics
from experiments.statistics.statistics import geometric_mean
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.incumbent import incumbent
from gensor_gym.exact.optimum import moving_knobs
from gensor_gym.exact.shipped import certificate_of
from gensor_gym.graph.schedule import Schedule
from gensor_gym.locate import located


@dataclass(frozen=True)
class Descents:
    """`exact.incumbent` as a strategy that constructs one program: the best of `restarts` coordinate descents on a GPU model."""

    space: str
    restarts: int

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Construct the best program of the descents; each evaluated program counts as a visited state."""
        begin, seed = time.perf_counter(), int(rng.integers(2**31))
        row, seconds, evaluations = incumbent(graph, moving_knobs(graph), self.restarts, seed)
        return Construction((Schedule(row),), (seconds,), evaluations, evaluations, time.perf_counter() - begin)


def run(config: DictConfig, emit: Lines) -> None:
    """Emit one line for the machine, one for each distinct operator, and one over all of them."""
    settings = config.construct
    emit(kind="machine", hardware=settings.hardware, space=settings.space, **machine())
    ops = list(dict.fromkeys(operators.resolve(_plain(settings.operators))))
    strategies: dict[str, Any] = {name: get_strategy(name) for name in (settings.strategy, settings.baseline)}
    strategies |= {f"descents_{count}": Descents(settings.space, count) for count in settings.descents}
    known = BestKnown(located(settings.best_known))
    for name, strategy in strategies.items():  # compilation is not construction
        strategy.construct(_graph(ops[0], settings, name, strategies), np.random.default_rng(0))
    rows = []
    try:
        for op in ops:
            rows.append(_shape(op, settings, strategies, known, config.seed))
            emit(kind="shape", **rows[-1])
    finally:
        known.save()
    emit(kind="all", **_overall(rows, settings, strategies))


def _shape(op: Any, settings: DictConfig, strategies: dict[str, Any], known: BestKnown, seed: int) -> dict[str, Any]:
    """Construct programs of one operator by every strategy, `repeats` times each; return the operator's line."""
    target = ConstructionGraph(op, settings.hardware, settings.space)
    searched = 0.0
    if (certificate := certificate_of(target)) is not None:
        known.offer(target, certificate.best, certified=True)
    if known.entry(target) is None:
        begin = time.perf_counter()
        known.offer(target, *search(target, settings.enumerate, settings.restarts, np.random.default_rng(seed)))
        searched = time.perf_counter() - begin
    row: dict[str, Any] = {"operator": str(op), "best_known_search_s": searched}
    for name, strategy in strategies.items():
        found, wall = [], []
        for repeat in range(settings.repeats):
            graph = _graph(op, settings, name, strategies)
            begin = time.perf_counter()
            found.append(strategy.construct(graph, np.random.default_rng(seed + repeat)))
            wall.append(time.perf_counter() - begin)
        best = _best(found[0], target)
        row[name] = {
            "seconds": spread(wall), "latency_s": best[1], "visited": found[0].visited,
            "visited_per_walk": found[0].visited / getattr(strategy, "walkers", 1),
            "evaluations": found[0].evaluations,
        }  # fmt: skip
        if best[0] is not None:
            known.offer(target, best[0])
    entry = known.tasks[key_of(target)]
    for name in strategies:
        row[name]["over_best_known"] = row[name]["latency_s"] / entry["seconds"]
    return {**row, "best_known_s": entry["seconds"], "certified": entry["certified"]}


def _graph(op: Any, settings: DictConfig, name: str, strategies: dict[str, Any]) -> ConstructionGraph:
    """Construction graph of the operator in the space of the strategy `name`."""
    return ConstructionGraph(op, settings.hardware, strategies[name].space)


def _best(found: Any, target: ConstructionGraph) -> tuple[Schedule | None, float]:
    """(schedule of the construction's fastest program, or None if it is illegal in the target space; the program's latency)."""
    at = int(np.argmin(found.latencies))
    schedule = found.schedules[at]
    return (schedule if target.is_legal(schedule) else None), float(found.latencies[at])


def _overall(rows: list[dict[str, Any]], settings: DictConfig, strategies: dict[str, Any]) -> dict[str, object]:
    """The line over all operators: geometric means, regrets to certified optima, number of losses to the baseline."""
    ours, theirs = settings.strategy, settings.baseline
    line: dict[str, object] = {
        "shapes": len(rows),
        "certified": sum(row["certified"] for row in rows),
        f"{ours}_slower_than_{theirs}": sum(
            row[ours]["latency_s"] > row[theirs]["latency_s"] * (1 + 1e-9) for row in rows
        ),
        f"{theirs}_over_{ours}": geometric_mean(row[theirs]["latency_s"] / row[ours]["latency_s"] for row in rows),
    }
    for name in strategies:
        seconds = [row[name]["seconds"]["median"] for row in rows]
        line[name] = {
            "over_best_known": geometric_mean(row[name]["over_best_known"] for row in rows),
            "worst_over_best_known": max(row[name]["over_best_known"] for row in rows),
            "iqm_regret": _iqm_regret([row[name]["over_best_known"] for row in rows if row["certified"]]),
            "median_evaluations": float(np.median([row[name]["evaluations"] for row in rows])),
            "median_seconds": float(np.median(seconds)),
            "largest_seconds": max(seconds),
            "median_visited": float(np.median([row[name]["visited"] for row in rows])),
            "median_visited_per_walk": float(np.median([row[name]["visited_per_walk"] for row in rows])),
        }
    return line


def _iqm_regret(ratios: list[float]) -> float | None:
    """Interquartile mean of log(T / T*); None if no operator has a certified optimum."""
    return float(statistics.interquartile_mean(np.log(ratios), axis=0)) if ratios else None


def _plain(value: Any) -> Any:
    """The value as text, or as a plain list instead of a list of OmegaConf."""
    return value if isinstance(value, str) else list(value)
