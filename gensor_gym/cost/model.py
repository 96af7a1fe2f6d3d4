"""The analytic model behind one interface: the predicted time of one schedule or of a batch, and its terms.

Numba selects the model by the type of the scratch array `room`, which a GPU's model does not need. So the other model, a third of
the code, is not compiled.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.cost.cpu.caches import WALK
from gensor_gym.cost.cpu.cpu import latency_cpu
from gensor_gym.cost.gpu.gpu import latency_gpu
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.graph.compiled import compiled, lean
from gensor_gym.graph.rules import fits
from gensor_gym.graph.tables.layout import ROW
from gensor_gym.graph.tables.tables import IS_CPU


def room(ints: np.ndarray) -> np.ndarray:
    """Make working memory for the model: float64 [WALK] for a CPU, an empty array [0, 0] for a GPU.

    Every thread needs its own.
    """
    return np.empty(WALK) if ints[IS_CPU] == 1 else np.empty((0, 0))


@lean
def latency(row, ints, floats, terms, tiles, space):  # noqa: ANN001, ANN201
    """Predict the time of a legal schedule in seconds.

    `terms` [NUM_TERMS] receives the terms of the time. Working memory: `tiles` int32 [ROW], and `space` from `room`.
    """
    if space.ndim == 2:  # Numba knows the number of dimensions before it types the calls below
        return latency_gpu(row, ints, floats, terms)
    return latency_cpu(row, ints, floats, terms, tiles, space)


@compiled
def fill_latencies(rows, ints, floats, space, seconds):  # noqa: ANN001, ANN201
    """Predict the seconds of every row [B, ROW], and write them into `seconds` float64 [B].

    The time of a program that does not fit the hardware is infinite.
    """
    terms, tiles = np.empty(NUM_TERMS, dtype=np.float64), np.empty(ROW, dtype=np.int32)
    for b in range(rows.shape[0]):
        seconds[b] = latency(rows[b], ints, floats, terms, tiles, space) if fits(rows[b], ints) else np.inf


@compiled
def fill_terms(rows, ints, floats, space, found):  # noqa: ANN001, ANN201
    """Predict the seconds of every legal row and their terms, and write them into `found` float64 [B, 1 + NUM_TERMS].

    For a program without a resident block the terms in `found` stay unchanged.
    """
    terms, tiles = np.empty(NUM_TERMS, dtype=np.float64), np.empty(ROW, dtype=np.int32)
    for b in range(rows.shape[0]):
        for t in range(NUM_TERMS):
            terms[t] = found[b, 1 + t]
        found[b, 0] = latency(rows[b], ints, floats, terms, tiles, space)
        for t in range(NUM_TERMS):
            found[b, 1 + t] = terms[t]
