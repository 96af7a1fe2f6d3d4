"""What uniform random search is expected to find, in closed form: the zero line of every comparison on a recorded table."""

from __future__ import annotations

import numpy as np


def expected_best(values: np.ndarray) -> np.ndarray:
    """Expected least of k different values drawn uniformly without replacement, for k = 1 .. N, float64 [N].

    `values` [N] are what is to be small (regrets, log seconds), one for each program; infinite ones make it infinite as long
    as they may be all that was drawn. With values v_1 <= .. <= v_N the least of k is v_i with probability
    C(N - i, k - 1) / C(N, k). ValueError where there are none.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = len(ordered)
    if ordered.ndim != 1 or not count or np.isnan(ordered).any():
        raise ValueError(f"values of shape {ordered.shape}: expected one row of at least one number")
    expected = np.empty(count)
    for k in range(1, count + 1):
        # P(best > v_i) = C(N - i, k) / C(N, k), as a running product
        kept = np.concatenate([[1.0], np.cumprod(np.maximum(0.0, (count - k - np.arange(count)) / (count - np.arange(count))))])
        chances = kept[:-1] - kept[1:]
        expected[k - 1] = float(np.dot(ordered[chances > 0], chances[chances > 0]))
    return expected
