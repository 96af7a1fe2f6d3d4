"""The analytic model behind one face: latency of one row, of a batch, and its terms."""

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


@compiled
def latency(row, ints, floats, terms):  # noqa: ANN001, ANN201
    """Seconds of a legal row; `terms` [NUM_TERMS] receives the parts."""
    if ints[IS_CPU] == 1:
        return latency_cpu(row, ints, floats, terms, np.empty(ROW, dtype=np.int32), np.empty(WALK))
    return latency_gpu(row, ints, floats, terms)


@lean
def latency_in(row, ints, floats, terms, tiles, walk):  # noqa: ANN001, ANN201
    """As `latency`, with the space that the model of a CPU needs: tiles int32 [ROW], walk float64 [WALK]."""
    if ints[IS_CPU] == 1:
        return latency_cpu(row, ints, floats, terms, tiles, walk)
    return latency_gpu(row, ints, floats, terms)


@compiled
def fill_latencies(rows, ints, floats, seconds):  # noqa: ANN001, ANN201
    """Seconds of every row [B, ROW]; infinite where the program does not fit the hardware."""
    terms = np.empty(NUM_TERMS, dtype=np.float64)
    for b in range(rows.shape[0]):
        seconds[b] = latency(rows[b], ints, floats, terms) if fits(rows[b], ints) else np.inf


@compiled
def fill_terms(rows, ints, floats, found):  # noqa: ANN001, ANN201
    """Seconds and then the terms of every legal row, float64 [B, 1 + NUM_TERMS]."""
    tiles, walk = np.empty(ROW, dtype=np.int32), np.empty(WALK)
    for b in range(rows.shape[0]):
        found[b, 0] = latency_in(rows[b], ints, floats, found[b, 1:], tiles, walk)
