"""How well predictions rank measurements."""

from __future__ import annotations

import numpy as np


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation of ranks, ties at their mean rank; nan if one side does not vary."""
    left, right = _ranks(a), _ranks(b)
    if min(np.std(left), np.std(right)) == 0:
        return float("nan")
    return float(np.corrcoef(left, right)[0, 1])


def top_k_regret(predicted: np.ndarray, measured: np.ndarray, k: int) -> float:
    """log(best measured among the model's k first / best measured of all)."""
    first = np.argsort(predicted, kind="stable")[:k]
    return float(np.log(measured[first].min() / measured.min()))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0, equal values at the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[place]
