"""Observation of the programs that a policy may build next, and the best program observed.

`Observer` gives the flat observation. `LookaheadObserver` adds the model's terms of every legal action's successor, as Gensor's
traverser uses them (arXiv 2502.11407); every evaluated program counts, as for the traverser.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import gymnasium
import numpy as np

from agents.gensor.walk import keep
from gensor_gym.cost.model import latency
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.env.observation import LIMIT, NUM_FEATURES, OFFSETS, fill_resources
from gensor_gym.env.tasks import TaskSet
from gensor_gym.graph.actions import ACTIONS, CACHE, KNOB_UP, STOP, TILE_UP, UNCACHE, VTHREAD_UP, space_actions
from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.rules import apply
from gensor_gym.graph.tables.layout import LEVEL, MAX_AXES, ROW, SPATIAL_SLOTS, TILE, VTHREAD
from gensor_gym.graph.tables.tables import EXTENT, FLOOR

_RESOURCES = OFFSETS["resources"]
_LEGAL, _GAIN, _RATIO = 0, 1, 2
_USES = _RATIO + NUM_TERMS
_GROWTH, _LEFT, _AFTER = _USES + 6, _USES + 7, _USES + 8
# Not the environment's view `successors` (`gensor_gym.env.views`), which is part of its interface: that one has a row for each
# of all actions, their levels and primitives, and charges nothing. Shipped policies were trained on these features.
NUM_LOOKAHEAD_FEATURES = _AFTER + 1
"""Legal; log speed-up; log ratios of the terms; resources; log2 of the size's growth and of the rest of the axis.

Log10 of the latency over the roofline floor. All zero if the action is illegal.
"""


class Programs(Protocol):
    """Programs of an observer: environments, or any programs (`agents.learners.guide.Placed`)."""

    tasks: TaskSet
    num_envs: int

    @property
    def task_indices(self) -> np.ndarray:
        """Task of each, int64 [B]."""

    @property
    def rows(self) -> np.ndarray:
        """Schedules int32 [B, ROW]."""

    def action_masks(self) -> np.ndarray:
        """Legal actions, bool [B, N]."""


Charge = Callable[[int, np.ndarray], None]
"""As `ConstructionGraph.charge`: evaluations, and improvements float64 [K, 2] of (evaluations by then, seconds)."""


class Observer:
    """The flat observation of `envs`; remembers the `retain` fastest programs that every episode went through."""

    extra = 0
    """Number of values in addition to the flat observation."""

    def __init__(self, envs: Programs, retain: int = 1, charge: Charge = lambda count, best: None) -> None:
        """Nothing observed; `charge` is told how many programs the model was asked about, and the best so far [[count, s]]."""
        self.envs, self.charge = envs, charge
        self.rows = np.zeros((envs.num_envs, retain, ROW), dtype=np.int32)
        self.seconds = np.full((envs.num_envs, retain), np.inf)

    @property
    def space(self) -> gymnasium.spaces.Box:
        """Observations of one environment."""
        return gymnasium.spaces.Box(-LIMIT, LIMIT, (NUM_FEATURES + self.extra,), dtype=np.float32)

    @staticmethod
    def features(space: str) -> int:
        """How many values a policy of a space of schedules observes."""
        return NUM_FEATURES

    def observe(self, flat: np.ndarray, over: np.ndarray) -> np.ndarray:
        """Observations float32 [B, O] from the flat ones [B, F]; episodes that are `over` (bool [B]) are not looked at."""
        tasks = self.envs.tasks
        rows, tables = self.envs.rows, (tasks.ints, tasks.floats)
        self._asked(evaluate_here(self.envs.task_indices, rows, over, *tables, tasks.room(), self.rows, self.seconds))
        return flat

    def _asked(self, count: int) -> None:
        """Charge `count` evaluations of the model; the best program so far counts after all of them."""
        if count:
            self.charge(count, np.array([[count, self.seconds.min()]]))

    def programs(self) -> tuple[np.ndarray, np.ndarray]:
        """The fastest observed: rows int32 [P, ROW], model seconds [P]."""
        found = np.isfinite(self.seconds)
        return self.rows[found], self.seconds[found]


class LookaheadObserver(Observer):
    """The flat observation, then NUM_LOOKAHEAD_FEATURES values for every action in `lookahead_actions` of the space."""

    def __init__(self, envs: Programs, retain: int = 1, charge: Charge = lambda count, best: None) -> None:
        """Nothing observed yet."""
        super().__init__(envs, retain, charge)
        self.actions = lookahead_actions(envs.tasks.space)
        self.extra = len(self.actions) * NUM_LOOKAHEAD_FEATURES

    @staticmethod
    def features(space: str) -> int:
        """Number of features: those of the flat observation and of every action."""
        return NUM_FEATURES + len(lookahead_actions(space)) * NUM_LOOKAHEAD_FEATURES

    def observe(self, flat: np.ndarray, over: np.ndarray) -> np.ndarray:
        """As of `Observer`; successors are remembered as well."""
        out = np.zeros((len(flat), NUM_FEATURES + self.extra), dtype=np.float32)
        out[:, :NUM_FEATURES] = flat
        tasks = self.envs.tasks
        asked = evaluate_ahead(
            self.envs.task_indices, self.envs.rows, over, self.envs.action_masks(), self.actions, tasks.ints, tasks.floats,
            tasks.sizes, tasks.room(), out, self.rows, self.seconds,
        )  # fmt: skip
        self._asked(asked)
        return out


def lookahead_actions(space: str) -> np.ndarray:
    """Actions that may be legal in a space, int64 [A]: virtual threads are along spatial axes alone."""
    inert = {"set_vthread", "inverse_vthread"}
    return np.array(
        [
            number
            for number, (action, there) in enumerate(zip(ACTIONS, space_actions(space), strict=True))
            if there and not (action.primitive in inert and action.axis is not None and action.axis >= SPATIAL_SLOTS)
        ]
    )


@compiled
def evaluate_here(task, rows, over, ints, floats, space, best_rows, best_seconds):  # noqa: ANN001, ANN201
    """Keep every program [B, ROW] that is not over among the best of its episode; returns evaluations of the model."""
    terms, tiles, evaluations = np.empty(NUM_TERMS), np.empty(ROW, dtype=np.int32), 0
    for b in range(rows.shape[0]):
        if not over[b]:
            now = latency(rows[b], ints[task[b]], floats[task[b]], terms, tiles, space)
            keep(best_rows[b], best_seconds[b], rows[b], now)
            evaluations += 1
    return evaluations


@compiled
def evaluate_ahead(task, rows, over, masks, actions, ints, floats, sizes, space, out, best_rows, best_seconds):  # noqa: ANN001, ANN201
    """Fill the successors' part of observations out [B, O]; returns evaluations of the model."""
    result, flat = np.empty(ROW, dtype=np.int32), np.zeros(_RESOURCES + 6, dtype=np.float32)
    here, there, evaluations = np.empty(NUM_TERMS), np.empty(NUM_TERMS), 0
    tiles = np.empty(ROW, dtype=np.int32)
    for b in range(rows.shape[0]):
        if over[b]:
            continue
        t = task[b]
        now = latency(rows[b], ints[t], floats[t], here, tiles, space)
        keep(best_rows[b], best_seconds[b], rows[b], now)
        evaluations += 1
        for i in range(actions.shape[0]):
            action = actions[i]
            if not masks[b, action]:
                continue
            at = out.shape[1] - (actions.shape[0] - i) * NUM_LOOKAHEAD_FEATURES
            result[:] = rows[b]
            apply(result, action, ints[t], sizes[t])
            after = now
            there[:] = here
            if action != STOP and action != CACHE and action != UNCACHE:  # else the same program
                after = latency(result, ints[t], floats[t], there, tiles, space)
                evaluations += 1
                keep(best_rows[b], best_seconds[b], result, after)
            fill_one(out[b, at : at + NUM_LOOKAHEAD_FEATURES], now, after, here, there, ints[t], floats[t], flat, result)
            fill_size(out[b, at : at + NUM_LOOKAHEAD_FEATURES], rows[b], result, action, ints[t])
    return evaluations


@compiled
def fill_one(out, now, after, here, there, ints, floats, flat, result):  # noqa: ANN001, ANN201
    """The model's terms of one successor relative to the present program, and its resources."""
    out[_LEGAL] = 1.0
    out[_GAIN] = max(-LIMIT, min(LIMIT, math.log(now / after)))
    least = 1e-3 * floats[FLOOR]
    for t in range(NUM_TERMS):
        out[_RATIO + t] = max(-LIMIT, min(LIMIT, math.log((here[t] + least) / (there[t] + least))))
    fill_resources(result, ints, flat)
    for i in range(6):
        out[_USES + i] = flat[_RESOURCES + i]
    out[_AFTER] = max(-LIMIT, min(LIMIT, math.log10(after / floats[FLOOR])))


@compiled
def fill_size(out, row, result, action, ints):  # noqa: ANN001, ANN201
    """How much a tile, or the virtual threads, along an axis grow, and how much of the axis is left."""
    if action < TILE_UP or action == CACHE or action == UNCACHE or action >= KNOB_UP:
        return
    if action < CACHE:
        axis = (action - TILE_UP) % MAX_AXES
        place, whole = TILE + row[LEVEL] * MAX_AXES + axis, ints[EXTENT + axis]
    else:
        axis = (action - VTHREAD_UP) % MAX_AXES
        place, whole = VTHREAD + axis, row[TILE + axis]
    out[_GROWTH] = math.log2(result[place] / row[place])
    out[_LEFT] = math.log2(whole / result[place]) / 4.0
