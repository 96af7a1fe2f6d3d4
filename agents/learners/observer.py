"""Observers, which turn the environment's observation into a policy's and remember the fastest observed programs.

`Observer` passes on the flat observation. `LookaheadObserver` adds the model's terms of every legal action's successor, which
Gensor's traverser uses too (arXiv 2502.11407). Every evaluated program is charged, as for the traverser.
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
# The environment's view `successors` (`gensor_gym.env.views`) has other features: a row for each of all actions, their levels and
# primitives, and no charge. Shipped policies were trained on the features here.
NUM_LOOKAHEAD_FEATURES = _AFTER + 1
"""Number of features per action, which are all zero if the action is illegal.

The features are legality; log speed-up; log ratios of the model's terms; resources; log2 of the growth of the changed size and of
what the axis has left; log10 of the latency over the roofline floor.
"""


class Programs(Protocol):
    """Interface of the observed programs: those of running environments, or any programs (`agents.learners.guide.Placed`)."""

    tasks: TaskSet
    num_envs: int

    @property
    def task_indices(self) -> np.ndarray:
        """Index of the task that each program belongs to, int64 [B]."""

    @property
    def rows(self) -> np.ndarray:
        """The programs, encoded as rows int32 [B, ROW]."""

    def action_masks(self) -> np.ndarray:
        """Return which actions are legal in each program, bool [B, N]."""


Charge = Callable[[int, np.ndarray], None]
"""Type of `ConstructionGraph.charge`, a function of the number of evaluations and the improvements among them.

The improvements are float64 [K, 2] of (evaluations so far, seconds).
"""


class Observer:
    """Observer that passes on the flat observation of `envs` and remembers the `retain` fastest programs of every episode."""

    extra = 0
    """Number of values that the observer adds to the flat observation."""

    def __init__(self, envs: Programs, retain: int = 1, charge: Charge = lambda count, best: None) -> None:
        """Prepare the memory of fastest programs.

        `charge` is called with the number of model evaluations and the best time so far, [[count, seconds]].
        """
        self.envs, self.charge = envs, charge
        self.rows = np.zeros((envs.num_envs, retain, ROW), dtype=np.int32)
        self.seconds = np.full((envs.num_envs, retain), np.inf)

    @property
    def space(self) -> gymnasium.spaces.Box:
        """Observation space of a single environment."""
        return gymnasium.spaces.Box(-LIMIT, LIMIT, (NUM_FEATURES + self.extra,), dtype=np.float32)

    @staticmethod
    def features(space: str) -> int:
        """Return the number of values that a policy observes in the space of schedules `space`."""
        return NUM_FEATURES

    def observe(self, flat: np.ndarray, over: np.ndarray) -> np.ndarray:
        """Return the observations float32 [B, O] of flat observations [B, F].

        The current programs of episodes that are not `over` are evaluated and remembered.
        """
        tasks = self.envs.tasks
        rows, tables = self.envs.rows, (tasks.ints, tasks.floats)
        self._asked(evaluate_here(self.envs.task_indices, rows, over, *tables, tasks.room(), self.rows, self.seconds))
        return flat

    def _asked(self, count: int) -> None:
        """Charge `count` model evaluations to the graph. The best program so far counts as found by the last of them."""
        if count:
            self.charge(count, np.array([[count, self.seconds.min()]]))

    def programs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the fastest observed programs of all episodes: (rows int32 [P, ROW], model seconds [P])."""
        found = np.isfinite(self.seconds)
        return self.rows[found], self.seconds[found]


class LookaheadObserver(Observer):
    """Observer that adds features of the program after every action (`lookahead_actions`) to the flat observation."""

    def __init__(self, envs: Programs, retain: int = 1, charge: Charge = lambda count, best: None) -> None:
        super().__init__(envs, retain, charge)
        self.actions = lookahead_actions(envs.tasks.space)
        self.extra = len(self.actions) * NUM_LOOKAHEAD_FEATURES

    @staticmethod
    def features(space: str) -> int:
        """Return the number of values that a policy observes: the flat observation, and the features of every action."""
        return NUM_FEATURES + len(lookahead_actions(space)) * NUM_LOOKAHEAD_FEATURES

    def observe(self, flat: np.ndarray, over: np.ndarray) -> np.ndarray:
        """Return observations float32 [B, O] that include the features of successors.

        Successors are evaluated and remembered like current programs.
        """
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
    """Return the actions int64 [A] that can be legal in a space. Actions on virtual threads along reduce axes never are."""
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
    """Evaluate the current programs [B, ROW] of running episodes and keep the best of each; return the number of evaluations."""
    terms, tiles, evaluations = np.empty(NUM_TERMS), np.empty(ROW, dtype=np.int32), 0
    for b in range(rows.shape[0]):
        if not over[b]:
            now = latency(rows[b], ints[task[b]], floats[task[b]], terms, tiles, space)
            keep(best_rows[b], best_seconds[b], rows[b], now)
            evaluations += 1
    return evaluations


@compiled
def evaluate_ahead(task, rows, over, masks, actions, ints, floats, sizes, space, out, best_rows, best_seconds):  # noqa: ANN001, ANN201
    """Evaluate the successors of B programs and write their features to the observations `out` [B, O].

    Return the number of model evaluations.
    """
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
            if action != STOP and action != CACHE and action != UNCACHE:  # these three do not change the program
                after = latency(result, ints[t], floats[t], there, tiles, space)
                evaluations += 1
                keep(best_rows[b], best_seconds[b], result, after)
            fill_one(out[b, at : at + NUM_LOOKAHEAD_FEATURES], now, after, here, there, ints[t], floats[t], flat, result)
            fill_size(out[b, at : at + NUM_LOOKAHEAD_FEATURES], rows[b], result, action, ints[t])
    return evaluations


@compiled
def fill_one(out, now, after, here, there, ints, floats, flat, result):  # noqa: ANN001, ANN201
    """Compute a successor's features except sizes: its model terms relative to the current program's, and its resources."""
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
    """Compute a successor's two features of size: log2 of the growth of the changed size, and log2 of how far it can still grow.

    The changed size is a tile, which can grow to the extent, or a number of virtual threads, which can grow to the register tile.
    """
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
