"""Compiled decision process of `Write-v0`, which takes one decision in each of a range of episodes.

Only the finished program is evaluated and rewarded.
"""

from __future__ import annotations

import math

import numpy as np

from gensor_gym.cost.model import latency
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.env.episodes.scalars import LATENCY, MODEL_REWARD, REMAINING, START_LATENCY, STEPS
from gensor_gym.env.observation import fill_schedule
from gensor_gym.env.reward import final_reward
from gensor_gym.env.writing.decisions import KIND, NUM_SUBJECTS, SIZE, START, STOP
from gensor_gym.env.writing.observation import CHOICES_AT, NUM_DYNAMIC, NUM_FEATURES, REMAINING_AT, SUBJECT_AT
from gensor_gym.env.writing.rules import fill_choices, goes, put
from gensor_gym.graph.compiled import compiled, early, lean
from gensor_gym.graph.rules import fits
from gensor_gym.graph.tables.layout import ROW
from gensor_gym.graph.tables.tables import FLOOR


@lean
def observe(tasks, task, row, scalars, masked, scratch, mask, obs):  # noqa: ANN001, ANN201
    """Write everything that an agent sees before the next decision: features into `obs`, possible options into `mask`.

    The features are those that change from step to step. `tasks` are the arrays of all tasks (`env.writing.tasks.Written`).
    `masked` says whether options that cannot lead to a legal program are masked.
    """
    left, count = int(scalars[REMAINING]), tasks.counts[task]
    at = count - left
    fact, options = tasks.facts[task, at], tasks.options
    fill_choices(row, fact, left == 1, options, tasks.ints[task], tasks.sizes[task], masked, scratch, mask)
    fill_schedule(row, tasks.ints[task], obs)
    for i in range(NUM_SUBJECTS):
        obs[SUBJECT_AT + i] = tasks.subjects[task, at, i]
    _fill_remaining(left, count, obs)
    span = fact[STOP] - fact[START]
    for i in range(NUM_DYNAMIC - CHOICES_AT):
        value = 0.0
        if i < mask.shape[0] and mask[i] == 1:
            value = math.log2(options[fact[START] + i, 0] + 1.0) / 8.0 if fact[KIND] == SIZE else (i + 1.0) / span
        obs[CHOICES_AT + i] = value


@lean
def _fill_remaining(left, count, obs):  # noqa: ANN001, ANN202
    """Write the two features of the decisions left: their fraction of all decisions, and their logarithm."""
    obs[REMAINING_AT] = left / count
    obs[REMAINING_AT + 1] = math.log2(left + 1.0) / 8.0


@lean
def begin(tasks, task, row, scalars, masked, scratch, mask, obs):  # noqa: ANN001, ANN201
    """Start an episode: write the program in which nothing is decided yet, with its scalars, features and mask."""
    for i in range(ROW):
        row[i] = tasks.initial[task, i]
    scalars[START_LATENCY] = tasks.floats[task, FLOOR]  # marks that an episode runs; no program is evaluated
    scalars[LATENCY] = math.inf
    scalars[REMAINING] = tasks.counts[task]
    scalars[STEPS] = 0
    observe(tasks, task, row, scalars, masked, scratch, mask, obs)
    for i in range(NUM_DYNAMIC, NUM_FEATURES):
        obs[i] = tasks.static[task, i - NUM_DYNAMIC]


@lean
def advance(tasks, task, row, scalars, action, settings, scratch, room, terms, mask, obs):  # noqa: ANN001, ANN201
    """Write the option that `action` chooses into the program, and return (reward, whether the episode ended).

    settings = [whether the mask excludes options that cannot lead to a legal program, whether the backend is the model]. If
    `action` is no option, or the program would not be well-formed, the number stays at its minimum. An option that cannot lead to
    a legal program is taken; the finished program is then illegal and pays nothing.
    """
    ints = tasks.ints[task]
    fact = tasks.facts[task, tasks.counts[task] - int(scalars[REMAINING])]
    if 0 <= action < fact[STOP] - fact[START] and goes(row, fact, fact[START] + action, tasks.options):
        put(row, fact, fact[START] + action, tasks.options)
    scalars[REMAINING] -= 1
    scalars[STEPS] += 1
    if scalars[REMAINING] > 0:
        observe(tasks, task, row, scalars, settings[0], scratch, mask, obs)
        return 0.0, False
    gain = 0.0
    if fits(row, ints):
        scalars[LATENCY] = latency(row, ints, tasks.floats[task], terms, scratch, room)
        if settings[1] == MODEL_REWARD:
            gain = final_reward(tasks.floats[task, FLOOR], scalars[LATENCY])
    _fill_end(row, ints, tasks.counts[task], mask, obs)
    return gain, True


@lean
def _fill_end(row, ints, count, mask, obs):  # noqa: ANN001, ANN202
    """Write mask and features of an ended episode. The mask allows action 0, because an empty mask cannot be sampled from."""
    for i in range(mask.shape[0]):
        mask[i] = i == 0
    fill_schedule(row, ints, obs)
    for i in range(SUBJECT_AT, NUM_DYNAMIC):
        obs[i] = 0.0
    _fill_remaining(0, count, obs)


@early
def begin_one(tasks, task, row, scalars, masked, mask, obs):  # noqa: ANN001, ANN201
    """Start the episode of a single environment (`begin`), with working memory allocated here."""
    begin(tasks, task, row, scalars, masked, np.empty(ROW, dtype=np.int32), mask, obs)


@early
def step_one(tasks, task, row, scalars, action, settings, room, mask, obs):  # noqa: ANN001, ANN201
    """Take one decision in a single environment (`advance`), with working memory allocated here."""
    scratch, terms = np.empty(ROW, dtype=np.int32), np.empty(NUM_TERMS, dtype=np.float64)
    return advance(tasks, task, row, scalars, action, settings, scratch, room, terms, mask, obs)


@compiled
def begin_range(tasks, chosen, own, rows, scalars, masked, masks, obs):  # noqa: ANN001, ANN201
    """Start an episode in each of the environments with the indices `chosen` (`begin`). `own` [B] has the task of each."""
    scratch = np.empty(ROW, dtype=np.int32)
    for b in chosen:
        begin(tasks, own[b], rows[b], scalars[b], masked, scratch, masks[b], obs[b])


@compiled
def step_range(tasks, low, high, own, rows, scalars, actions, skip, settings, room, masks, obs, rewards, ended):  # noqa: ANN001, ANN201
    """Take one decision in each of the environments low..high-1 (`advance`).

    Environments with `skip` set stay unchanged and get reward 0.
    """
    scratch, terms = np.empty(ROW, dtype=np.int32), np.empty(NUM_TERMS, dtype=np.float64)
    for b in range(low, high):
        rewards[b], ended[b] = 0.0, False
        if not skip[b]:
            rewards[b], ended[b] = advance(
                tasks, own[b], rows[b], scalars[b], actions[b], settings, scratch, room, terms, masks[b], obs[b]
            )
