"""Times of the parts of an environment's step: the model, the action mask and the observation.

They are timed on states that episodes reach, on one thread. A step also applies the action, computes the reward and runs Python
around the compiled loop; these are not timed here.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from experiments.benches.lines import Lines, calibration
from experiments.comparison.summary import interval
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.model import latency, room
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.env.observation import NUM_FEATURES, fill_dynamic
from gensor_gym.graph.actions import NUM_ACTIONS
from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.rules import fill_masks
from gensor_gym.graph.tables.layout import ROW

DEEP = 30
"""Number of legal actions that are played from the start of an episode to reach the states that are timed."""


def run(graph: ConstructionGraph, rows: np.ndarray, arguments: dict, repeats: int, emit: Lines) -> None:
    """Time model, mask and observation on the states `rows`, int32 [B, ROW]; emit one line.

    The line has processor microseconds of each part per state: medians over `repeats` with intervals.
    """
    count, tables = len(rows), graph.tables
    ints, floats, sizes, space = tables.ints, tables.floats, tables.sizes, room(tables.ints)
    terms, latencies = np.zeros((count, NUM_TERMS)), np.zeros(count)
    masks, seen = np.zeros((count, NUM_ACTIONS), dtype=np.int8), np.zeros((count, NUM_FEATURES), dtype=np.float32)
    parts: dict[str, Callable[[], None]] = {
        "model_us": lambda: _model(rows, ints, floats, space, terms, latencies),
        "mask_us": lambda: fill_masks(rows, ints, sizes, masks),
        "observation_us": lambda: _observe(rows, ints, floats, terms, latencies, seen),
    }
    for work in parts.values():
        work()
    loops: list[float] = []
    found: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(repeats):
        loops.append(calibration())
        for name, work in parts.items():
            begin = time.process_time()
            work()
            found[name].append((time.process_time() - begin) / count * 1e6)
    times = {name: interval(samples) for name, samples in found.items()}
    emit(kind="parts", num_envs=count, **arguments, **times, calibration_loop_per_second=interval(loops))


@compiled
def _model(rows, ints, floats, space, terms, latencies):  # noqa: ANN001, ANN202
    tiles = np.empty(ROW, dtype=np.int32)
    for b in range(len(rows)):
        latencies[b] = latency(rows[b], ints, floats, terms[b], tiles, space)


@compiled
def _observe(rows, ints, floats, terms, latencies, observations):  # noqa: ANN001, ANN202
    for b in range(len(rows)):
        fill_dynamic(rows[b], latencies[b], terms[b], 50.0, ints, floats, observations[b])
