"""Our kernel in the comparison of fused operators: the fastest that a search of a few measured trials finds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np

from agents import optimize
from experiments.benches.fused.race import Ways
from gensor_gym import hardware
from gensor_gym.codegen.runtime.memory import aligned
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.measure.backend import get_backend


def prepare(graph: Dataflow, inputs: Sequence[np.ndarray], asked: dict[str, Any]) -> Ways:
    """Search for a kernel; return the ways to call it: like a function, as in the README, and bound to an existing output."""
    hw = hardware.get("host")
    with closing(get_backend("cpu", hw)) as backend:
        found = optimize(graph, hw, asked["strategy"], asked["trials"], asked["seed"], backend)
    kernel = found.kernel
    bound = kernel.bind(*inputs, *(aligned(value.shape, np.dtype(np.float32)) for value in graph.outputs))
    facts = {"schedule": str(found.schedule), "trials": len(found.trace), "measured_s": found.seconds}
    return Ways({"called": lambda: kernel(*inputs), "into": bound}, facts)
