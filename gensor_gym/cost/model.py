"""The analytic model behind one interface: latency of one row, of a batch, and its terms.

Numba selects the model by a type: that of the scratch space `room`, which a GPU's model does not need. The other model, a third
of the code, is then not compiled.
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
    """Scratch space of the model: float64 [WALK] for a CPU, an empty array [0, 0] for a GPU.

    Make one for each thread.
    """
    return np.empty(WALK) if ints[IS_CPU] == 1 else np.empty((0, 0))


@lean
def latency(row, ints, floats, terms, tiles, space):  # noqa: ANN001, ANN201
    """Seconds of a legal row; `terms` [NUM_TERMS] receives the parts. `tiles` int32 [ROW] is scratch, `space` its `room`."""
    if space.ndim == 2:  # which Numba knows of an array before it asks what the calls below are
        return latency_gpu(row, ints, floats, terms)
    return latency_cpu(row, ints, floats, terms, tiles, space)


@compiled
def fill_latencies(rows, ints, floats, space, seconds):  # noqa: ANN001, ANN201
    """Seconds of every row [B, ROW]; infinite if the program does not fit the hardware."""
    terms, tiles = np.empty(NUM_TERMS, dtype=np.float64), np.empty(ROW, dtype=np.int32)
    for b in range(rows.shape[0]):
        seconds[b] = latency(rows[b], ints, floats, terms, tiles, space) if fits(rows[b], ints) else np.inf


@compiled
def fill_terms(rows, ints, floats, space, found):  # noqa: ANN001, ANN201
    """Seconds and then the terms of every legal row, float64 [B, 1 + NUM_TERMS]; without a resident block these stay."""
    terms, tiles = np.empty(NUM_TERMS, dtype=np.float64), np.empty(ROW, dtype=np.int32)
    for b in range(rows.shape[0]):
        for t in range(NUM_TERMS):
            terms[t] = found[b, 1 + t]
        found[b, 0] = latency(rows[b], ints, floats, terms, tiles, space)
        for t in range(NUM_TERMS):
            found[b, 1 + t] = terms[t]
