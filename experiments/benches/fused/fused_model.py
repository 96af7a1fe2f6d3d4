"""Benchmark of how well the model ranks programs of fused operators on this CPU, by timing programs.

For each operator, random programs and the model's first choices are timed: `python -m experiments.bench suite=fused_model`.
Measurements are stored, so that an interrupted run resumes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from agents.baselines.exhaustive import tried_first
from experiments.benches.lines import Lines, machine
from experiments.common.statistics import spearman, top_k_regret
from gensor_gym.gir.graph import GirGraph
from gensor_gym.measure.session import Budget, Session, Task

FIRST = (1, 3, 10)
"""Numbers k for which the regret of the best of the model's first k programs is reported.

The regret of the first FIRST[1] programs that strategy `exhaustive` would try is reported too.
"""


def run(config: DictConfig, lines: Lines) -> None:
    """Rank the programs of each operator; emit a line about the machine, one for every operator and one over all."""
    settings = config.fused_model
    lines(kind="machine", **machine())
    store = settings.store or str(Path(config.output) / "fused_model.sqlite")
    found = [ranked(op, settings, config.seed, store) for op in settings.operators]
    for row in found:
        lines(kind="operator", **row)
    ranks = [row["rank_correlation"] for row in found]
    regrets = [row["regret"][str(FIRST[1])] for row in found]
    lines(kind="all", operators=len(found), least_rank_correlation=min(ranks), mean_rank_correlation=float(np.mean(ranks)),
          largest_regret_of_three=max(regrets), largest_regret_of_tried=max(row["regret_tried"] for row in found))  # fmt: skip


def ranked(operator: str, settings: DictConfig, seed: int, store: str) -> dict[str, Any]:
    """Time random programs of one operator and the model's first choices; return how well the model ranks them.

    The row has the rank correlation of predicted and measured seconds, and the regret of the best of the model's first programs.
    """
    session = Session(Task.of(operator, "host", "cpu", "gir"), Budget(), store)
    graph: GirGraph = session.graph  # type: ignore[assignment]
    rng = np.random.default_rng(seed)
    space = graph.table
    legal = np.flatnonzero(space.legal)
    drawn = rng.choice(legal, min(settings.programs, len(legal)), replace=False)
    first = legal[np.argsort(space.seconds[legal], kind="stable")][: settings.first]
    numbers = np.array(list(dict.fromkeys([*drawn.tolist(), *first.tolist()])))
    schedules = [graph.schedule(row) for row in space.rows(numbers)]
    measured = np.array([result.seconds for result in session.measure(schedules)])  # type: ignore[arg-type]
    ran = np.isfinite(measured)
    predicted, at_random = space.seconds[numbers], np.isin(numbers, drawn)
    best = int(np.argmin(measured))
    tried = measured[ran][tried_first(graph, space.rows(numbers)[ran], predicted[ran])[: FIRST[1]]]
    return {
        "operator": operator, "legal": len(legal), "programs": len(numbers), "failed": int(np.count_nonzero(~ran)),
        "rank_correlation": spearman(predicted[ran & at_random], measured[ran & at_random]),
        "regret_tried": float(np.log(tried.min() / measured[best])),
        "regret": {str(k): top_k_regret(predicted[ran], measured[ran], k) for k in FIRST},
        "measured_over_predicted": float(np.median(measured[ran] / predicted[ran])),
        "best": str(schedules[best]), "best_seconds": float(measured[best]),
    }  # fmt: skip
