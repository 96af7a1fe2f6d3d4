"""Features of a fused operator and its schedule, with which the observations are filled.

They are the schedule's settings and placement of values, terms of the model, remaining steps, and facts about the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from gensor_gym.dataflow.expressions import operations
from gensor_gym.env.fused.graph_view import GirGraphView
from gensor_gym.env.graph_view import box
from gensor_gym.env.observation import LIMIT
from gensor_gym.env.settings import Settings, kept_slices
from gensor_gym.gir.actions import ACTIONS, NUM_ACTIONS
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.model import TERMS
from gensor_gym.gir.nest import RowNest
from gensor_gym.gir.placement import Level
from gensor_gym.gir.schedule import FIELDS, HEADER, MOST_PLACED, GirSchedule
from gensor_gym.gir.space.table import GirTable

CELL = 4
"""Number of features of a value that several passes read: 1, whether it is an input, log operations, number of passes. All are
0 in unused places."""
NEST = 12
GROUPS = {
    "header": HEADER, "placement": MOST_PLACED * len(Level), "speed": 1, "terms": len(TERMS), "remaining": 2,
    "nest": NEST, "cells": MOST_PLACED * CELL,
}  # fmt: skip
"""Number of features of each group, in order. The groups up to `remaining` change from step to step."""
DYNAMIC = sum(size for name, size in GROUPS.items() if name not in ("nest", "cells"))
NUM_FEATURES = sum(GROUPS.values())
_ENDS = np.cumsum(list(GROUPS.values()))
SLICES = {name: slice(int(end) - size, int(end)) for (name, size), end in zip(GROUPS.items(), _ENDS, strict=True)}
_TOPS = np.array([len(field.values) - 1 for field in FIELDS], np.float32)
_PRIMITIVES = ("stop", "raise", "lower", "place")
_ONE_HOT = np.array([[action.primitive == word for word in _PRIMITIVES] for action in ACTIONS], np.float32)
NUM_SUCCESSOR_FEATURES = 2 + len(TERMS) + len(_PRIMITIVES)
"""Number of features of the state that an action leads to: legality, log speed-up by the model, log ratios of terms, one hot of
the primitive."""


def fill_state(rows: np.ndarray, terms: np.ndarray, starts: np.ndarray, found: np.ndarray) -> None:
    """Write the features that change from step to step, for B schedules at once, into `found` float32 [B, F].

    `rows` int32 [B, ROW] are the schedules; `terms` float64 [B, 1 + terms] are their times by the model in seconds, the total
    first; `starts` [B] are the times of the unscheduled programs. The group `remaining` is left to the caller.
    """
    found[:, SLICES["header"]] = rows[:, :HEADER] / _TOPS
    placed = rows[:, HEADER:, None] == np.arange(len(Level))
    found[:, SLICES["placement"]] = placed.reshape(len(rows), MOST_PLACED * len(Level))
    found[:, SLICES["speed"]] = np.clip(np.log(starts[:, None] / terms[:, :1]), -LIMIT, LIMIT)
    found[:, SLICES["terms"]] = terms[:, 1:] / terms[:, :1]


def static_features(graph: GirGraph) -> np.ndarray:
    """Return the features that stay constant in an episode, float32 [NEST + MOST_PLACED * CELL].

    They describe the operator's loop nest, then each value that several passes read.
    """
    nest, op = graph.nest, graph.operator
    wide = [cell for cell in nest.cells if cell.wide]
    logs = [nest.rows, nest.columns, op.flops, op.compulsory_bytes]
    counts = [
        nest.passes, len(nest.crossing), len(wide), sum(cell.is_load for cell in wide), len(nest.stores),
        sum(cell.is_reduction for cell in nest.cells), len(nest.row_extents), graph.hardware.units,
    ]  # fmt: skip
    cells = np.zeros((MOST_PLACED, CELL), np.float32)
    for place, name in enumerate(nest.crossing):
        cells[place] = 1.0, nest.cell[name].is_load, np.log2(1.0 + _work(nest, name)) / 8.0, len(nest.uses[name]) / 4.0
    first = np.array([*(np.log2(value) / 32.0 for value in logs), *(count / 8.0 for count in counts)], np.float32)
    return np.clip(np.concatenate([first, cells.ravel()]), -LIMIT, LIMIT)


def _work(nest: RowNest, name: str) -> float:
    """Return the number of operations that compute a cell from the operator's inputs and from values with one element per row."""
    cell = nest.cell[name]
    own = 0 if cell.is_reduction or cell.is_load else operations(cell.made)  # type: ignore[arg-type]
    return own + sum(_work(nest, source) for source in cell.sources if nest.cell[source].wide)


class GirView:
    """Turns the features of one environment, or of a batch, into the observation that the settings choose."""

    def __init__(self, settings: Settings) -> None:
        """Take the kind of observation and the groups from the settings. ValueError names an unknown group."""
        self.kind = settings.observation
        self.slices = kept_slices(settings.groups, SLICES)
        self.keep = np.concatenate([np.arange(s.start, s.stop) for s in self.slices.values()])
        self._graphs = GirGraphView(GROUPS, self.slices)
        self.space = self._space()

    def _space(self) -> gymnasium.Space:
        if self.kind == "dict":
            boxes: dict[str, gymnasium.Space] = {name: box(s.stop - s.start) for name, s in self.slices.items()}
            return gymnasium.spaces.Dict(boxes)
        if self.kind == "graph":
            return self._graphs.space
        return box(NUM_ACTIONS, NUM_SUCCESSOR_FEATURES) if self.kind == "successors" else box(len(self.keep))

    def single(self, features: np.ndarray, graph: GirGraph, row: np.ndarray, mask: np.ndarray) -> Any:
        """Return the observation of one environment from its features float32 [F]."""
        if self.kind == "successors":
            return successor_features(graph.table, row, mask)
        if self.kind == "graph":
            return self._graphs.of({name: features[s] for name, s in self.slices.items()}, graph, row)
        return self.batch(features.copy())

    def batch(self, features: np.ndarray) -> Any:
        """Return the flat observation, or a dictionary of its groups, from features [..., F]."""
        if self.kind == "dict":
            return {name: features[..., s].copy() for name, s in self.slices.items()}
        return features[..., self.keep]

    def drawn(self, mode: str) -> Callable[[GirGraph, GirSchedule], Any]:
        """Return the function that draws a schedule: as text for render mode `ansi`, else as an image."""
        from gensor_gym.env.fused import pictures

        return pictures.as_text if mode == "ansi" else pictures.as_image


def successor_features(table: GirTable, row: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the features of the state that each action leads to, float32 [N, NUM_SUCCESSOR_FEATURES].

    The row of an illegal action has only the one hot of the action's primitive.
    """
    number = table.numbers(row[None])
    now, after = table.terms[number], table.terms[table.successors(number)[0]]
    legal = mask.astype(bool)
    found = np.zeros((NUM_ACTIONS, NUM_SUCCESSOR_FEATURES), np.float32)
    found[legal, 0] = 1.0
    ratios = np.log((now + 1e-12) / (after[legal] + 1e-12))
    found[legal, 1 : 2 + len(TERMS)] = np.clip(ratios, -LIMIT, LIMIT)
    found[:, -len(_PRIMITIVES) :] = _ONE_HOT
    return found
