"""Scores of predictions against times: rank correlations, and the cost of the first choices, with ties at their worst."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.benches.model import COEFFICIENTS, Sample, fit
from experiments.evidence.ranking.measured import FITTED
from experiments.statistics import fastest, spearman

FIRST = 10
"""Number of the model's first choices whose best is scored."""
MOST_FITTED = 250
"""Largest number of an operator's programs in a fit."""


@dataclass(frozen=True)
class Scored:
    """Scores of one operator: rank correlations, first choice and best of the first FIRST over the best of all, and the scale."""

    measured: Sample
    ranks: float
    ranks_fastest: float
    first: float
    first_ten: float
    scale: float
    """Median of measured over predicted."""


def scored(measured: Sample) -> Scored:
    """Score the present model on the programs of an operator."""
    seconds, predicted = measured.seconds, measured.graph.latencies(measured.rows)
    fast = fastest(seconds)
    order, best = worst_tied(predicted, seconds), seconds.min()
    return Scored(
        measured, spearman(predicted, seconds), spearman(predicted[fast], seconds[fast]), float(seconds[order[0]] / best),
        float(seconds[order[:FIRST]].min() / best), float(np.median(seconds / predicted)),
    )  # fmt: skip


def worst_tied(predicted: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Indices int64 [N] in the order of predictions [N]; among equal predictions the slowest program comes first."""
    return np.lexsort((-seconds, predicted))


def by_class(them: Sequence[Scored]) -> dict[str, float]:
    """Class of operators -> median of measured over predicted seconds of all its programs."""
    ratios: dict[str, list[np.ndarray]] = defaultdict(list)
    for one in them:
        found = one.measured
        ratios[found.graph.operator.name].append(found.seconds / found.graph.latencies(found.rows))
    return {name: float(np.median(np.concatenate(parts))) for name, parts in sorted(ratios.items())}


def left_out(tables: Sequence[Sample]) -> dict[str, float]:
    """Rank correlation of every operator after a fit of the terms' coefficients to the operators of other classes."""
    found = {}
    for name in sorted({table.graph.operator.name for table in tables}):
        others = [table for table in tables if table.graph.operator.name != name and table.part in FITTED]
        coefficients = fit([thinned(table) for table in others])
        for table in tables:
            if table.graph.operator.name == name:
                predicted = table.with_values(COEFFICIENTS, coefficients).predicted()
                found[table.operator] = spearman(predicted, table.seconds)
    return found


def thinned(sample: Sample) -> Sample:
    """At most MOST_FITTED programs for a fit, evenly spaced in the order of time; ValueError if no fit may read their part."""
    if sample.part not in FITTED:
        raise ValueError(f"{sample.operator} is of part {sample.part}: a fit reads {' and '.join(FITTED)} alone")
    order = np.argsort(sample.seconds, kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, MOST_FITTED).astype(int))]
    return Sample(sample.graph, sample.rows[chosen], sample.seconds[chosen])
