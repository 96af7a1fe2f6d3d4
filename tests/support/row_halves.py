"""Random graphs over rows with values of 16 bits: inputs, outputs and what lies between them."""

from __future__ import annotations

import dataclasses

import numpy as np

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import HALVES, Map, Reduce
from tests.support.row_dataflows import random_rows_dataflow


def random_halves_dataflow(seed: int) -> Dataflow:
    """The random graph of a seed after a part of its inputs, maps and reductions took one of the 16-bit types."""
    graph, rng = random_rows_dataflow(seed), np.random.default_rng([seed, 16])
    half = str(rng.choice(HALVES))
    chosen = {one.name for one in graph.inputs if one.dtype == "float32" and rng.random() < 0.7}
    inputs = tuple(dataclasses.replace(one, dtype=half) if one.name in chosen else one for one in graph.inputs)
    made = [name for name, node in graph.nodes if isinstance(node, Map | Reduce)]
    rounded = frozenset((name, half) for name in made if rng.random() < (0.7 if name in graph.returns else 0.3))
    return dataclasses.replace(graph, name=f"halves_{seed}", inputs=inputs, rounded=rounded, label="")
