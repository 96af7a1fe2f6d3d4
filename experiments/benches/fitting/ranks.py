"""Scores of how well predictions rank measurements: rank correlation and top-k regret."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

FASTEST = 5
"""One program in this many counts as one of the fastest, whose ranking is also scored separately."""


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rank correlation; ties get their mean rank. The result is nan if one side is constant."""
    left, right = rankdata(a), rankdata(b)
    if min(np.std(left), np.std(right)) == 0:
        return float("nan")
    return float(np.corrcoef(left, right)[0, 1])


def fastest(seconds: np.ndarray) -> np.ndarray:
    """Indices of the fastest 1/FASTEST of the programs, at least three of them."""
    return np.argsort(seconds, kind="stable")[: max(3, len(seconds) // FASTEST)]


def top_k_regret(predicted: np.ndarray, measured: np.ndarray, k: int) -> float:
    """log(best time among the model's first k programs / best time of all)."""
    first = np.argsort(predicted, kind="stable")[:k]
    return float(np.log(measured[first].min() / measured.min()))
