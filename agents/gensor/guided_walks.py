"""Random walks of the traverser that use any model of time, such as a learned one.

Compiled walks (`walk`) use the analytic model only. Compiled and guided walks follow one Markov chain: each step turns benefits
of the legal primitives into probabilities. `walk` takes ratios of the analytic model's latencies. `guided_walks` takes ratios of
predicted times, for the successors of all walks in one batch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from agents.gensor import walk
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import CACHE, UNCACHE


def guided_walks(
    graph: ConstructionGraph,
    starts: np.ndarray,
    predict: Callable[[np.ndarray], np.ndarray],
    options: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Walk in parallel from the encoded programs `starts` [W, ROW], with times that `predict` computes.

    Return all evaluated programs, distinct int32 [P, ROW], and their predicted seconds [P]. `options` are `Markov.options`:
    exponents, temperatures and the number of steps.
    """
    rows, now = starts.copy(), predict(starts)
    at_level = np.zeros(len(rows), dtype=np.int64)
    seen = {row.tobytes(): float(value) for row, value in zip(rows, now, strict=True)}
    steps = int(options[walk.STEPS])
    cooling = (options[walk.FINISH] / options[walk.START]) ** (1.0 / max(1, steps - 1))
    for step in range(steps):
        masks = graph.action_masks(rows)
        masks[:, 0] = False  # walks never take `stop`
        source, action = np.nonzero(masks)
        results, _ = graph.transitions(rows[source], action)
        after = _predicted(results, predict, seen)
        ints, floats = graph.tables.ints, graph.tables.floats
        gains = np.array([
            walk.log_benefit(a, now[w], after[i], rows[w], results[i], at_level[w], ints, floats, options)
            for i, (w, a) in enumerate(zip(source, action, strict=True))
        ])  # fmt: skip
        # The largest of gain / temperature + Gumbel noise is a draw with probability proportional to exp(gain / temperature).
        noisy = gains / (options[walk.START] * cooling**step) + rng.gumbel(size=len(gains))
        for w in np.unique(source):
            mine = np.flatnonzero(source == w)
            chosen = mine[np.argmax(noisy[mine])]
            rows[w], now[w] = results[chosen], after[chosen]
            at_level[w] = 0 if action[chosen] in (CACHE, UNCACHE) else at_level[w] + 1
    found = np.frombuffer(b"".join(seen), dtype=rows.dtype).reshape(-1, rows.shape[1])
    return found, np.array(list(seen.values()))


def _predicted(rows: np.ndarray, predict: Callable[[np.ndarray], np.ndarray], seen: dict[bytes, float]) -> np.ndarray:
    keys = [row.tobytes() for row in rows]
    new = list({key: index for index, key in enumerate(keys) if key not in seen}.values())
    if new:
        seen.update(zip((keys[index] for index in new), predict(rows[new]).tolist(), strict=True))
    return np.array([seen[key] for key in keys])
