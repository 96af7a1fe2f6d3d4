"""Where the time of an environment's step goes: model, mask and observation, each alone on states on the way of episodes.

What a step takes beside these is the move itself, the reward, and the Python around the compiled loop. One thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import gymnasium
import numpy as np

from experiments.benches.lines import Lines, calibration, spread
from gensor_gym.cost.cpu_caches import WALK
from gensor_gym.cost.model import latency_in
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.env.observation import NUM_FEATURES, fill_dynamic
from gensor_gym.graph.actions import NUM_ACTIONS, STOP
from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.layout import ROW
from gensor_gym.graph.rules import fill_mask

DEEP = 30
"""Legal actions from the start of an episode to the states that are looked at."""


def run(arguments: dict, count: int, repeats: int, seed: int, emit: Lines) -> None:
    """One line for a task: microseconds of processor time of each part, in turn, medians over rounds with intervals."""
    graph, rows = _states(arguments, count, seed)
    ints, floats, sizes = graph.tables.ints, graph.tables.floats, graph.tables.sizes
    terms, latencies = np.zeros((count, NUM_TERMS)), np.zeros(count)
    parts: dict[str, Callable[[], None]] = {
        "model_us": lambda: _model(rows, ints, floats, terms, latencies),
        "mask_us": lambda: _mask(rows, ints, sizes, np.zeros((count, NUM_ACTIONS), dtype=np.int8)),
        "observation_us": lambda: _observe(
            rows, ints, floats, terms, latencies, np.zeros((count, NUM_FEATURES), dtype=np.float32)
        ),
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
    times = {name: spread(samples) for name, samples in found.items()}
    emit(kind="parts", num_envs=count, **arguments, **times, calibration_loop_per_second=spread(loops))


def _states(arguments: dict, count: int, seed: int):  # noqa: ANN202
    """The task's graph, and states int32 [count, ROW] some legal actions deep."""
    envs = gymnasium.make_vec("gensor_gym/Construct-v0", num_envs=count, **arguments)
    rng = np.random.default_rng(seed)
    _, info = envs.reset(seed=seed)
    for _ in range(DEEP):
        masks = info["action_mask"].astype(bool)
        masks[:, STOP] &= ~masks[:, 1:].any(axis=1)
        _, _, _, _, info = envs.step(np.where(masks, rng.random(masks.shape), -1.0).argmax(axis=1))
    graph, rows = envs.unwrapped.graphs[0], envs.unwrapped.rows.copy()  # type: ignore[attr-defined]
    envs.close()
    return graph, rows


@compiled
def _model(rows, ints, floats, terms, latencies):  # noqa: ANN001, ANN202
    """Latency and terms of every row."""
    scratch, walk = np.empty(ROW, dtype=np.int32), np.empty(WALK, dtype=np.float64)
    for b in range(len(rows)):
        latencies[b] = latency_in(rows[b], ints, floats, terms[b], scratch, walk)


@compiled
def _mask(rows, ints, sizes, masks):  # noqa: ANN001, ANN202
    """Legal actions of every row."""
    scratch = np.empty(ROW, dtype=np.int32)
    for b in range(len(rows)):
        fill_mask(rows[b], ints, sizes, scratch, masks[b])


@compiled
def _observe(rows, ints, floats, terms, latencies, observations):  # noqa: ANN001, ANN202
    """What depends on the state of every row's observation."""
    for b in range(len(rows)):
        fill_dynamic(rows[b], latencies[b], terms[b], 50.0, ints, floats, observations[b])
