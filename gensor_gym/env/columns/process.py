"""The decision process with actions that set columns, compiled: of `env.process` all but how an action changes the program.

A program has all levels opened, always. Everything else, potentials, rewards and features, is that of `env.process`.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.env.episodes.scalars import POTENTIAL, REMAINING, STEPS
from gensor_gym.env.process import leave_stop, look, open_episode, pay, stand_still
from gensor_gym.env.reward import step_reward
from gensor_gym.graph.actions import STOP
from gensor_gym.graph.columns.mask import fill_column_mask
from gensor_gym.graph.compiled import compiled, early, lean
from gensor_gym.graph.coordinates import set_column
from gensor_gym.graph.tables.layout import LEVEL, MAX_LEVELS, ROW
from gensor_gym.graph.tables.tables import NUM_LEVELS


@lean
def fill_mask(columns, task, row, scalars, ints, sizes, scratch, known, mask):  # noqa: ANN001, ANN201
    """Legal actions of a state; `columns` as of `columns.tasks.Columns`, `known` as of `graph.columns.mask`."""
    if scalars[REMAINING] <= 1:
        leave_stop(mask)
    else:
        fill_column_mask(
            row, columns.counts[task], columns.places[task], columns.offsets[task], columns.actions[task], columns.values,
            columns.bounds[task], columns.chains, ints[task], sizes[task], scratch, known, mask,
        )  # fmt: skip


@lean
def begin(
    columns, task, row, scalars, ints, floats, sizes, static, initial, starts, scratch, known, room, terms, mask, obs
):  # noqa: ANN001, ANN201  # fmt: skip
    """Start an episode at `row`, all of whose levels are opened, which changes no program."""
    row[LEVEL] = ints[task, NUM_LEVELS] - 1
    open_episode(task, scalars, ints, floats, static, initial, starts, scratch, room, terms, obs)
    look(task, row, scalars, ints, floats, scratch, room, terms, obs)
    fill_mask(columns, task, row, scalars, ints, sizes, scratch, known, mask)


@lean
def advance(
    columns, task, row, scalars, action, ints, floats, sizes, settings, scratch, known, room, terms, mask, obs
):  # noqa: ANN001, ANN201  # fmt: skip
    """One step in place, as of `env.process.advance`: (reward, whether the episode ended)."""
    if action == STOP or scalars[REMAINING] <= 1:
        return pay(task, scalars, ints, floats, settings, mask, obs)
    before = settings[2] * scalars[POTENTIAL]
    scalars[REMAINING] -= 1
    scalars[STEPS] += 1
    if 0 <= action < mask.shape[0] and mask[action] == 1:
        apply(columns, task, row, action)
        look(task, row, scalars, ints, floats, scratch, room, terms, obs)
        fill_mask(columns, task, row, scalars, ints, sizes, scratch, known, mask)
    else:
        stand_still(task, scalars, ints, mask, obs)
    return step_reward(before, settings[2] * scalars[POTENTIAL], settings[0], settings[1]), False


@lean
def apply(columns, task, row, action):  # noqa: ANN001, ANN201
    """Set the column that a legal action is about to its value."""
    for column in range(columns.counts[task]):
        value = columns.offsets[task, column] + action - columns.actions[task, column]
        if columns.offsets[task, column] <= value < columns.offsets[task, column + 1]:
            set_column(row, column, value, columns.places[task], columns.values)


@early
def begin_one(columns, task, row, scalars, ints, floats, sizes, static, initial, starts, room, mask, obs):  # noqa: ANN001, ANN201
    """`begin` with its own room, for a single environment."""
    scratch, terms = np.empty(ROW, dtype=np.int32), np.empty(NUM_TERMS, dtype=np.float64)
    known = np.empty((MAX_LEVELS, sizes.shape[1]), dtype=np.int8)
    begin(columns, task, row, scalars, ints, floats, sizes, static, initial, starts, scratch, known, room, terms, mask, obs)


@early
def step_one(columns, task, row, scalars, action, ints, floats, sizes, settings, room, mask, obs):  # noqa: ANN001, ANN201
    """`advance` with its own room, for a single environment."""
    scratch, terms = np.empty(ROW, dtype=np.int32), np.empty(NUM_TERMS, dtype=np.float64)
    known = np.empty((MAX_LEVELS, sizes.shape[1]), dtype=np.int8)
    return advance(columns, task, row, scalars, action, ints, floats, sizes, settings, scratch, known, room, terms, mask, obs)


@compiled
def begin_range(columns, chosen, tasks, rows, scalars, ints, floats, sizes, static, initial, starts, room, masks, obs):  # noqa: ANN001, ANN201
    """`begin` of every environment in `chosen`."""
    scratch, terms = np.empty(ROW, dtype=np.int32), np.empty(NUM_TERMS, dtype=np.float64)
    known = np.empty((MAX_LEVELS, sizes.shape[1]), dtype=np.int8)
    for b in chosen:
        begin(
            columns, tasks[b], rows[b], scalars[b], ints, floats, sizes, static, initial, starts, scratch, known, room, terms,
            masks[b], obs[b],
        )  # fmt: skip


@compiled
def step_range(
    columns, low, high, tasks, rows, scalars, actions, skip, ints, floats, sizes, settings, room, masks, obs, rewards, ended
):  # noqa: ANN001, ANN201
    """`advance` of environments low..high-1; those with skip set are left alone with reward 0."""
    scratch, terms = np.empty(ROW, dtype=np.int32), np.empty(NUM_TERMS, dtype=np.float64)
    known = np.empty((MAX_LEVELS, sizes.shape[1]), dtype=np.int8)
    for b in range(low, high):
        rewards[b], ended[b] = 0.0, False
        if not skip[b]:
            rewards[b], ended[b] = advance(
                columns, tasks[b], rows[b], scalars[b], actions[b], ints, floats, sizes, settings, scratch, known, room, terms,
                masks[b], obs[b],
            )  # fmt: skip
