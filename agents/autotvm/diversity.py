"""Choose a batch of candidates that are both good and diverse (Chen et al., NeurIPS 2018, section 3.3)."""

from __future__ import annotations

import numpy as np


def diverse_pick(points: np.ndarray, scores: np.ndarray, count: int, alpha: float) -> np.ndarray:
    """Pick `count` good and diverse candidates greedily; return their indices.

    The maximised (submodular) objective is the sum of scores plus `alpha` times the number of distinct values of every knob in
    the batch. `points` int64 [N, K] and `scores` [N] are sorted, best first, and ties go to the first candidate. With an infinite
    alpha only distinct values count, as in the authors' released code, which multiplies the scores by zero.
    """
    weight, gains = (0.0, 1.0) if np.isinf(alpha) else (1.0, alpha)
    left = np.ones(len(points), dtype=np.bool_)
    chosen: list[int] = []
    fresh = np.ones(points.shape, dtype=np.bool_)
    for _ in range(min(count, len(points))):
        value = np.where(left, weight * scores + gains * fresh.sum(axis=1), -np.inf)
        at = int(np.argmax(value))
        chosen.append(at)
        left[at] = False
        fresh &= points != points[at]
    return np.array(chosen, dtype=np.int64)
