"""Demonstrations: fast programs that coordinate descents by the model find, from which a policy learns.

Tensor cores need matching tiles of several axes, and a policy that draws one column at a time rarely draws their best programs.
Demonstrations rank first, so that their columns become likely together.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from agents.columns.choices import Choices
from agents.core.column_descents import begun, descended
from agents.core.programs import Programs
from agents.core.ranking import ranked
from gensor_gym.cache.folders import make_cache_dir
from gensor_gym.files import whole
from gensor_gym.fingerprint import fingerprint

RESTARTS = 24
MOST = 24
"""Maximum number of demonstrations of a task."""
WITHIN = 1.5
"""Largest model time of a demonstration, as a multiple of the fastest demonstration's."""
_known: dict[Choices, np.ndarray] = {}


def demonstrated(choices: Choices) -> np.ndarray:
    """Return a task's demonstrations as choices int64 [<= MOST, K], one value index per column, fastest program first.

    Demonstrations are computed once and stored in the cache folder.
    """
    if choices not in _known:
        path = make_cache_dir("demonstrations") / f"{_key(choices)}.npy"
        if not path.exists():
            found = _found(choices)
            whole(path, lambda temporary: _write(temporary, found))
        _known[choices] = np.load(path)
    return _known[choices]


def _found(choices: Choices) -> np.ndarray:
    graph = choices.graph
    schedules, latencies = ranked(*descended(Programs(graph), begun(graph, RESTARTS, np.random.default_rng(0))), graph)
    fast = sum(seconds <= WITHIN * latencies[0] for seconds in latencies)  # fastest first
    vectors = [vector for schedule in schedules[: min(fast, MOST)] if (vector := choices.vector_of(schedule.row)) is not None]
    return np.array(vectors, dtype=np.int64).reshape(-1, len(choices.counts))


def _write(path: Path, found: np.ndarray) -> None:
    """Write an array to an open file, because NumPy would add an extension to a path."""
    with path.open("wb") as file:
        np.save(file, found)


def _key(choices: Choices) -> str:
    graph = choices.graph
    text = "\0".join([str(graph.operator), graph.hardware.digest, graph.space, fingerprint(graph), str(RESTARTS)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]
