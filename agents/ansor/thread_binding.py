"""Ansor's filter of random programs on a GPU, which demands at least a warp of threads and few virtual threads (TVM v0.8).

Ansor's code drops a sampled program with fewer threads than a warp, unless there are at most two warps of outputs. It also drops
programs with more virtual threads than a quarter of a warp. Evolution may still produce such programs.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, SPATIAL_SLOTS, TILE, VTHREAD

FEW_OUTPUTS = 2
"""Largest number of outputs, in warps, for which a block may have fewer threads than a warp."""
VIRTUAL = 4
"""The maximum number of virtual threads is a warp's size divided by this."""
_REDUCE_THREADS, _TENSOR_CORE = (KNOB + KNOB_INDEX[name] for name in ("reduce_threads", "tensor_core"))
_SHARES = np.array(KNOBS[KNOB_INDEX["reduce_threads"]].values)


def binds(graph: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
    """Return whether Ansor would bind the threads of each encoded program of `rows` [B, ROW], bool [B].

    Programs for a CPU or with tensor cores are always accepted.
    """
    if graph.hardware.kind == "cpu":
        return np.ones(len(rows), dtype=np.bool_)
    warp = graph.hardware.warp
    register, block = (rows[:, TILE + level * MAX_AXES : TILE + level * MAX_AXES + SPATIAL_SLOTS] for level in (0, 1))
    threads = (-(-block // register)).prod(axis=1) * _SHARES[rows[:, _REDUCE_THREADS]]
    virtual = rows[:, VTHREAD : VTHREAD + SPATIAL_SLOTS].prod(axis=1)
    outputs = np.prod([graph.operator.extents[a] for a in graph.operator.spatial], dtype=np.int64)
    enough = (threads >= warp) | (outputs <= FEW_OUTPUTS * warp)
    found: np.ndarray = (rows[:, _TENSOR_CORE] > 0) | (enough & (virtual <= warp // VIRTUAL))
    return found
